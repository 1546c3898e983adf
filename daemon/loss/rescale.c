#include "loss/rescale.h"
