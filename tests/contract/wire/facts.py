"""What a wire contract says, as facts that can be compared: a name, and what stands on the wire for it.

Names are relative to the package: `PodSandbox`, `PodSandbox.uid`, `Event.LAST`, `Plugin.Configure`. The text of a field
is its number, label and type, of an enum's value its number, of a method both messages and which of them are streams.
Comments, options for generators and the order in a file are no facts of a protocol.
"""

from collections.abc import Iterator, Mapping

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)


def facts(file: FileDescriptorProto, renamed: Mapping[str, str] = {}) -> dict[str, str]:
    """Every fact of one file. `renamed`: full names of types that the other side declares under another full name."""
    found = {"(package)": file.package, "(syntax)": file.syntax or "proto2"}
    for message in file.message_type:
        found.update(_of_message(message, message.name, renamed))
    for enum in file.enum_type:
        found.update(_of_enum(enum, enum.name))
    for service in file.service:
        found[service.name] = "service"
        found.update((f"{service.name}.{method.name}", _method(method, renamed)) for method in service.method)
    return found


def beyond(those: Mapping[str, str], these: Mapping[str, str]) -> set[str]:
    """The names that only `those` have; what a name holds is not listed besides the name itself."""
    only = set(those) - set(these)
    return {name for name in only if name.rpartition(".")[0] not in only}


def differing(those: Mapping[str, str], these: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """What both have by name and say otherwise: of `those`, then of `these`."""
    both = sorted(set(those) & set(these))
    return {name: (those[name], these[name]) for name in both if those[name] != these[name]}


def _of_message(message: DescriptorProto, name: str, renamed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield name, "map entry" if message.options.map_entry else "message"
    for field in message.field:
        yield f"{name}.{field.name}", _field(field, message, renamed)
    for nested in message.nested_type:
        yield from _of_message(nested, f"{name}.{nested.name}", renamed)
    for enum in message.enum_type:
        yield from _of_enum(enum, f"{name}.{enum.name}")


def _of_enum(enum: EnumDescriptorProto, name: str) -> Iterator[tuple[str, str]]:
    yield name, "enum"
    for value in enum.value:
        yield f"{name}.{value.name}", str(value.number)


def _field(field: FieldDescriptorProto, message: DescriptorProto, renamed: Mapping[str, str]) -> str:
    label = FieldDescriptorProto.Label.Name(field.label).removeprefix("LABEL_").lower()
    kind = _named(field.type_name, renamed) or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    said = f"{field.number} {label} {kind}"
    if field.proto3_optional:
        said += " with presence"
    elif field.HasField("oneof_index"):
        said += f" in oneof {message.oneof_decl[field.oneof_index].name}"
    if field.options.HasField("packed"):
        said += f" packed={field.options.packed}"
    return said


def _method(method: MethodDescriptorProto, renamed: Mapping[str, str]) -> str:
    asked = f"{'stream ' if method.client_streaming else ''}{_named(method.input_type, renamed)}"
    told = f"{'stream ' if method.server_streaming else ''}{_named(method.output_type, renamed)}"
    return f"{asked} -> {told}"


def _named(full: str, renamed: Mapping[str, str]) -> str:
    name = full.removeprefix(".")
    return renamed.get(name, name)
