package envoy

import (
	"runtime"
	"sync"
	"weak"
)

// weakMap has values as long as they are in use elsewhere. The zero value is empty. It is safe for concurrent use.
type weakMap[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]weak.Pointer[V]
}

// get returns the value of a key. Without one it returns that of create, and keeps it.
func (m *weakMap[K, V]) get(key K, create func() *V) *V {
	m.mu.Lock()
	value := m.values[key].Value()
	m.mu.Unlock()
	if value != nil {
		return value
	}
	created := create()
	m.mu.Lock()
	defer m.mu.Unlock()
	if value := m.values[key].Value(); value != nil { // of a concurrent call
		return value
	}
	if m.values == nil {
		m.values = make(map[K]weak.Pointer[V])
	}
	m.values[key] = weak.Make(created)
	runtime.AddCleanup(created, m.forget, key)
	return created
}

// forget removes a value that is not in use any more.
func (m *weakMap[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values[key].Value() == nil {
		delete(m.values, key)
	}
}
