//go:build !linux

package process

import (
	"errors"
	"time"
)

// CPUOf returns the CPU time of another process. Only Linux tells.
func CPUOf(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
