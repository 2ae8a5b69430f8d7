package main

import (
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitMemory has the process keep to 90 % of what its control group may have, so that it collects garbage before the kernel
// kills it. GOMEMLIMIT says something else, and AUTOMEMLIMIT another share, or off.
func limitMemory(log *slog.Logger) {
	limit, err := memlimit.Set()
	switch {
	case err != nil:
		log.Warn("how much memory there may be is not known", "err", err)
	case limit < math.MaxInt64:
		log.Info("memory is limited", "bytes", limit)
	}
}
