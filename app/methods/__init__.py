"""What each method of the protocol does, between a message that was read and the result that is sent."""
