//go:build !unix || aix || solaris

package lastgood

import "os"

// acquire leaves it to bbolt to lock each file.
func acquire(*os.File) error { return nil }
