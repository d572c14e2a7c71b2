"""What the suite's tools-*, server-* and http-* scenarios call: tools that reply with each kind of content."""

from __future__ import annotations

import asyncio
import base64
import io
import wave
from typing import Annotated, Any, Literal

from mcp_types import AudioContent, EmbeddedResource, ImageContent, TextContent, TextResourceContents
from pydantic import Field

from app import ToolContext, ToolError, tool

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
"""An image of one pixel."""

CONTACT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""A schema that says more than the parameters of a function can."""


def silence() -> str:
    """A WAV file of a hundredth of a second, in base64."""
    file = io.BytesIO()
    with wave.open(file, "wb") as audio:
        audio.setnchannels(1)
        audio.setsampwidth(1)
        audio.setframerate(8000)
        audio.writeframes(b"\x80" * 80)
    return base64.b64encode(file.getvalue()).decode()


@tool
async def test_simple_text() -> str:
    """Reply with text."""
    return "This is a simple text response for testing."


@tool
async def test_image_content() -> ImageContent:
    """Reply with an image."""
    return ImageContent(type="image", data=PNG, mime_type="image/png")


@tool
def test_audio_content() -> AudioContent:
    """Reply with audio."""
    return AudioContent(type="audio", data=silence(), mime_type="audio/wav")


@tool
async def test_embedded_resource() -> EmbeddedResource:
    """Reply with a resource."""
    return resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@tool
async def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Reply with three kinds of content."""
    return [
        TextContent(type="text", text="Multiple content types test:"),
        ImageContent(type="image", data=PNG, mime_type="image/png"),
        resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ]


def resource(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    """A resource with its text."""
    contents = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=contents)


@tool
async def test_error_handling() -> str:
    """Fail, in a way that the caller should read."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool(task="never")
async def test_tool_with_progress(ctx: ToolContext) -> str:
    """Tell three times how far it is."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100)
        await asyncio.sleep(0.05)
    return "All is done."


@tool(task="never")
async def test_logging_tool(ctx: ToolContext) -> str:
    """Write to the server's log, of which clients see nothing."""
    ctx.log.info("logged")
    return "It is logged."


@tool(task="never")
def test_custom_headers(message: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Message"})]) -> str:
    """Repeat a message that the client also puts into a header."""
    return message


@tool(input_schema=CONTACT)
async def json_schema_2020_12_tool(
    name: str | None = None,
    address: dict[str, Any] | None = None,
    method: Annotated[Literal["phone", "email"] | None, Field(alias="contactMethod")] = None,
    phone: str | None = None,
    email: str | None = None,
) -> str:
    """Get in touch with somebody."""
    return f"Wrote to {name or 'somebody'} by {method or 'email'}: {phone or email}, {address}"
