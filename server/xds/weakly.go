package xds

import (
	"sync"
	"weak"
)

// weakly remembers a value for as long as somebody else uses it, and until the next garbage collection after that. It is
// made again when it is asked for and gone.
type weakly[T any] struct {
	mu    sync.Mutex
	value weak.Pointer[T]
}

// get returns the value, or makes it. Who comes in the meantime waits for the one that is being made.
func (w *weakly[T]) get(build func() *T) *T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.value.Value(); v != nil {
		return v
	}
	v := build()
	w.value = weak.Make(v)
	return v
}
