#include "loss/loss.h"
