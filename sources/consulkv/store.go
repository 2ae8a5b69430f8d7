package consulkv

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
)

// Store has objects in Consul, where several programs can write at the same time: the slower one gets a conflict. The
// version of an object is the ModifyIndex of its key. A store is not safe for concurrent use.
//
// Reads use a local copy, which Refresh and mutators update. Mutators read and write Consul itself.
type Store struct {
	place   *place
	entries map[string]entry          // the local copy, by key in Consul; nil before the first Refresh
	holders map[resource.Key][]string // keys with an object, in order: the first one counts
}

// entry is the decoded value of a key.
type entry struct {
	version string // the ModifyIndex
	objects map[resource.Key]*resource.Resource
	rejects []sources.Reject
}

// Open returns the store at address, "consul-kv://host:port/prefix", without reading it. An error begins with the key
// or variable at fault.
func Open(address string, settings Settings) (*Store, error) {
	place, err := newPlace(address, settings)
	if err != nil {
		return nil, err
	}
	return &Store{place: place}, nil
}

// String names the store in messages.
func (s *Store) String() string { return s.place.name + " prefix " + s.place.prefix }

// Close closes idle connections.
func (s *Store) Close() { s.place.client.Close() }

// Refresh reads all keys.
func (s *Store) Refresh(ctx context.Context) error {
	listing, err := s.place.list(ctx, confirmed)
	switch {
	case err != nil || len(listing.pairs) > 0:
	case listing.Index == 0 || listing.Leaderless:
		err = dial.ErrForeign
	default:
		err = s.place.mayRead(ctx, listing.Anonymous, nil)
	}
	if err != nil {
		return errors.New(s.place.stateOf(err).Message)
	}
	s.entries = make(map[string]entry)
	s.holders = make(map[resource.Key][]string)
	for _, pair := range listing.pairs {
		s.set(pair)
	}
	return nil
}

// set stores the decoded value of a key in the local copy. A key without index does not exist.
func (s *Store) set(pair *api.KVPair) {
	for object := range s.entries[pair.Key].objects {
		s.holders[object] = slices.DeleteFunc(s.holders[object], func(key string) bool { return key == pair.Key })
	}
	delete(s.entries, pair.Key)
	if pair.ModifyIndex == 0 {
		return
	}
	content := s.place.parse(pair.Key, pair.Value)
	objects := make(map[resource.Key]*resource.Resource)
	for _, current := range content.Resources {
		if _, taken := objects[current.Key()]; taken {
			continue // the first one counts
		}
		objects[current.Key()] = current
		s.holders[current.Key()] = append(s.holders[current.Key()], pair.Key)
		slices.Sort(s.holders[current.Key()])
	}
	s.entries[pair.Key] = entry{strconv.FormatUint(pair.ModifyIndex, 10), objects, content.Rejects}
}

// keyWith returns the key in Consul that has an object; empty if none has it.
func (s *Store) keyWith(object resource.Key) string {
	if holders := s.holders[object]; len(holders) > 0 {
		return holders[0]
	}
	return ""
}

// Get returns the resource of key, or nil.
func (s *Store) Get(key resource.Key) *resource.Resource {
	return s.entries[s.keyWith(key)].objects[key]
}

// List returns the resources of a kind, in key order.
func (s *Store) List(kind resource.Kind) (resources []*resource.Resource) {
	for key := range s.holders {
		if r := s.Get(key); r != nil && key.Kind == kind {
			resources = append(resources, r)
		}
	}
	slices.SortFunc(resources, func(a, b *resource.Resource) int { return a.Key().Compare(b.Key()) })
	return resources
}

// Rejects returns the objects of the store that cannot be decoded.
func (s *Store) Rejects() (rejects []sources.Reject) {
	for _, e := range s.entries {
		rejects = append(rejects, e.rejects...)
	}
	return rejects
}

// Version returns the version of an object, for Update and Delete; empty if there is no such object.
func (s *Store) Version(key resource.Key) string { return s.entries[s.keyWith(key)].version }

// Create adds object, and fails with ErrExists if its key is taken. It returns the version stored.
func (s *Store) Create(object *resource.Resource) (string, error) {
	return s.change("create", object.Key(), func(old *resource.Resource, _ string) (*resource.Resource, error) {
		if old != nil {
			return nil, memstore.ErrExists
		}
		if object.Created().IsZero() {
			return object.WithCreated(time.Now().UTC().Truncate(time.Second)), nil
		}
		return object, nil
	})
}

// Update replaces the resource with the key of r. It fails with ErrNotFound if there is none, and with ErrConflict if
// its version is not ifVersion. An equal resource is not written.
func (s *Store) Update(r *resource.Resource, ifVersion string) (string, error) {
	return s.change("update", r.Key(), func(old *resource.Resource, version string) (*resource.Resource, error) {
		return r, memstore.Expect(old, version, ifVersion)
	})
}

// Delete removes the resource of key, under the same conditions as Update. It removes it from all keys of Consul: else
// the next one in order would take its place.
func (s *Store) Delete(key resource.Key, ifVersion string) error {
	for {
		_, err := s.change("delete", key, func(old *resource.Resource, version string) (*resource.Resource, error) {
			return nil, memstore.Expect(old, version, ifVersion)
		})
		if err != nil || s.Get(key) == nil {
			return err
		}
		ifVersion = s.Version(key)
	}
}
