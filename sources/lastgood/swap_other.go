//go:build !linux

package lastgood

import "errors"

// swap is not supported.
func swap(first, second string) error { return errors.ErrUnsupported }
