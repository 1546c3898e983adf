#include "loss/backend.h"
