package consultest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"
)

// Set writes a key.
func (d *Datacenter) Set(key, value string) {
	d.Edit(func() { d.write(api.KVPair{Key: key, Value: []byte(value)}) })
}

// Delete deletes a key.
func (d *Datacenter) Delete(key string) { d.Edit(func() { d.remove(key) }) }

// Get returns the value of a key.
func (d *Datacenter) Get(key string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if pair := d.keys[key]; pair != nil {
		return string(pair.Value)
	}
	return ""
}

// Keys returns all keys, in order.
func (d *Datacenter) Keys() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.keys))
}

// write stores a pair, and returns it with its indexes.
func (d *Datacenter) write(pair api.KVPair) *api.KVPair {
	former := d.keys[pair.Key]
	if former != nil && former.Flags == pair.Flags && string(former.Value) == string(pair.Value) {
		return former // as Consul, which skips writes of an equal value
	}
	d.Index++
	pair.CreateIndex, pair.ModifyIndex = d.Index, d.Index
	if former != nil {
		pair.CreateIndex = former.CreateIndex
	}
	d.keys[pair.Key] = &pair
	delete(d.Tombstones, pair.Key)
	return &pair
}

func (d *Datacenter) remove(key string) {
	if d.keys[key] != nil {
		d.Index++
		delete(d.keys, key)
		d.Tombstones[key] = d.Index
	}
}

// answerKeys answers with the key of a name, or with all that begin with it. The index is that of the newest change or
// deletion of them, or without any that of the whole Consul.
func (d *Datacenter) answerKeys(name string, query Query, answer Answer) (any, Answer, error) {
	isSelected := func(key string) bool {
		return key == name || (query.Recurse || query.Names) && strings.HasPrefix(key, name)
	}
	isHidden := func(key string) bool {
		return d.Hides || d.HiddenKeys != "" && strings.HasPrefix(key, d.HiddenKeys)
	}
	answer.Index = 0
	pairs := api.KVPairs{}
	for _, key := range slices.Sorted(maps.Keys(d.keys)) {
		pair := d.keys[key]
		if !isSelected(key) {
			continue
		}
		answer.Index = max(answer.Index, pair.ModifyIndex)
		if !isHidden(key) && (d.Replayed == 0 || query.Consistent || pair.ModifyIndex <= d.Replayed) {
			pairs = append(pairs, pair)
		}
	}
	for key, index := range d.Tombstones {
		if (query.Recurse || query.Names) && isSelected(key) {
			answer.Index = max(answer.Index, index)
		}
	}
	if answer.Index == 0 {
		answer.Index = d.Index
	}
	switch {
	case query.Names:
		return []string{}, answer, nil // their names do not matter
	case !query.Recurse && isHidden(name):
		return nil, answer, api.StatusError{
			Code: 403, Body: fmt.Sprintf("Permission denied: anonymous token lacks permission 'key:read' on %q", name),
		}
	case d.Replayed > 0 && !query.Consistent:
		answer.Index = d.Replayed
	}
	return pairs, answer, nil
}
