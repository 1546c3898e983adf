#include "codec/utf8.h"

#include <string.h>

static bool is_continuation(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

size_t utf8_sequence(const uint8_t *text, const uint8_t *end)
{
    const size_t room = (size_t)(end - text);

    if (room == 0)
        return 0;
    if (text[0] < 0x80)
        return 1;
    if (text[0] < 0xc2 || text[0] > 0xf4 || room < 2 || !is_continuation(text[1]))
        return 0;
    if (text[0] < 0xe0)
        return 2;
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    if (room < 3 || !is_continuation(text[2]))
        return 0;
    if (text[0] < 0xf0)
        return 3;
    return room >= 4 && is_continuation(text[3]) ? 4 : 0;
}

bool utf8_is_valid(const uint8_t *text, size_t size)
{
    const uint8_t *const end = text + size;

    while (text < end) {
        uint64_t eight;
        size_t length;

        if (end - text >= 8) {
            memcpy(&eight, text, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                text += 8;
                continue;
            }
        }
        length = utf8_sequence(text, end);
        if (length == 0)
            return false;
        text += length;
    }
    return true;
}
