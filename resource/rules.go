package resource

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

// Rules identifies what this program makes of a text and of a resource: two processes for which it is the same decode alike
// and judge alike, so that one may rely on what the other found. It is that of the executable, since the rules are code, of
// this module and of others. It is empty if that cannot be told; then nothing may be relied on.
var Rules = sync.OnceValue(func() string {
	path, err := os.Executable()
	if runtime.GOOS == "linux" {
		path = "/proc/self/exe" // also if another one has taken its place
	}
	if err != nil {
		return ""
	}
	fi, err := os.Stat(path)
	if err != nil {
		return ""
	}
	h := sha256.New()
	h.Write(fmt.Appendln(nil, fi.Size(), fi.ModTime().UnixNano()))
	if info, ok := debug.ReadBuildInfo(); ok {
		h.Write([]byte(info.String()))
	}
	if f, err := elf.Open(path); err == nil {
		defer f.Close() //nolint:errcheck // only read
		if note := f.Section(".note.go.buildid"); note != nil {
			id, _ := note.Data() // a hash of all that was linked
			h.Write(id)
		}
	}
	return string(h.Sum(nil)[:16])
})
