/* JSON bodies: of the largest call, of the configuration file, and of a message with a field of every kind. */
#include "codec_promises.h"
#include "kinds.pb-c.h"
#include "lossd/v1/config.pb-c.h"
#include "lossd/v1/loss.pb-c.h"
#include "target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    check_codec_promises(CODEC_JSON, &lossd__v1__compute_loss_request__descriptor, bytes, size);
    check_codec_promises(CODEC_JSON, &lossd__v1__daemon_config__descriptor, bytes, size);
    check_codec_promises(CODEC_JSON, &lossd__test__kinds__descriptor, bytes, size);
    return 0;
}
