package envoy

import (
	"runtime"
	"sync"
	"weak"
)

// weakMap has a value as long as it is in use elsewhere. The zero value is empty. It is safe for concurrent use.
type weakMap[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]weak.Pointer[V]
}

// getOrCreate returns the value of a key. Without a value, it stores and returns that of create.
func (m *weakMap[K, V]) getOrCreate(key K, create func() *V) *V {
	m.mu.Lock()
	value := m.values[key].Value()
	m.mu.Unlock()
	if value != nil {
		return value
	}
	created := create()
	m.mu.Lock()
	defer m.mu.Unlock()
	if value := m.values[key].Value(); value != nil {
		return value // of a concurrent call
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
