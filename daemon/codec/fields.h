/*
 * What protobuf-c descriptors leave to their readers: JSON names, presence, where the elements of a field lie.
 * Pure; any thread.
 */
#ifndef CODEC_FIELDS_H
#define CODEC_FIELDS_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest JSON name that is known, with its NUL; longer ones are cut and match nothing. */
enum { JSON_NAME_SIZE = 128 };

/* lowerCamelCase of the field's name, as protoc makes it. Returns its length. */
size_t field_json_name(const ProtobufCFieldDescriptor *field, char name[JSON_NAME_SIZE]);

/* The field whose JSON name or proto name is key, or NULL. */
const ProtobufCFieldDescriptor *field_by_key(const ProtobufCMessageDescriptor *descriptor, const char *key,
                                             size_t length);

/* The field of a number, found in O(log n); NULL where there is none. */
const ProtobufCFieldDescriptor *field_by_number(const ProtobufCMessageDescriptor *descriptor, uint32_t number);

/* Integers, floats and doubles; not bool and enum. */
bool type_is_number(ProtobufCType type);

/* Bytes of one element in a message or in the array of a repeated field. */
size_t type_size(ProtobufCType type);

bool field_is_oneof(const ProtobufCFieldDescriptor *field);

/* The member of a message that holds the field, and the one that holds its presence, case or count. */
void *field_member(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
void *field_quantifier(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

/* Elements that are there: 0 or 1 for singular fields, by explicit presence where the schema has it. */
size_t field_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

/* Element i < field_count. */
const void *field_element(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, size_t i);

/* Say that a singular field is there; its member is set by the caller. */
void field_mark_present(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

/* The first required field that is absent, or NULL. */
const ProtobufCFieldDescriptor *field_first_missing(const ProtobufCMessage *message);

#endif
