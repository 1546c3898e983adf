#include "codec/message.h"
