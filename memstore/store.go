package memstore

import (
	"errors"
	"fmt"
	"slices"

	"tributary/resource"
)

// Store is a ConfigStoreController in memory. Its state, revision and log of changes are those of a Table, which
// sources fill by Apply and MarkSynced; mutators and Apply may be mixed. Mutators neither block each other for long nor
// hold a lock while they call an edit function.
type Store struct {
	*Controller // reads and handlers
	*Table      // state
}

// New returns an empty store for the given kinds, or for all kinds if none are given. It is not synced until
// MarkSynced.
func New(schemas ...*resource.Schema) *Store {
	table := new(Table)
	return &Store{Controller: NewController(table, schemas...), Table: table}
}

// Create adds object, and fails with ErrExists if its key is taken.
func (s *Store) Create(object *resource.Resource) (string, error) {
	version, err := s.edit(object.Key(), func(old *resource.Resource) (*resource.Resource, error) {
		if old != nil {
			return nil, ErrExists
		}
		return object, nil
	})
	if err != nil {
		return "", fmt.Errorf("create %s: %w", object.Key(), err)
	}
	return version, nil
}

// Update replaces the resource of object's key, and fails with ErrNotFound if there is none and with ErrConflict if its
// version is not ifVersion.
func (s *Store) Update(object *resource.Resource, ifVersion string) (string, error) {
	version, err := s.edit(object.Key(), func(old *resource.Resource) (*resource.Resource, error) {
		return object, Expect(old, versionOf(old), ifVersion)
	})
	if err != nil {
		return "", fmt.Errorf("update %s: %w", object.Key(), err)
	}
	return version, nil
}

// Patch replaces the resource of key by the result of edit. After another write, it calls edit again with the newer
// resource. It calls edit without a lock.
func (s *Store) Patch(key resource.Key, edit func(*resource.Resource) (*resource.Resource, error)) (string, error) {
	version, err := s.edit(key, func(old *resource.Resource) (*resource.Resource, error) {
		if err := Expect(old, "", ""); err != nil {
			return nil, err
		}
		return Edited(old, edit)
	})
	if err != nil {
		return "", fmt.Errorf("patch %s: %w", key, err)
	}
	return version, nil
}

// Delete removes the resource of key, under the same conditions as Update.
func (s *Store) Delete(key resource.Key, ifVersion string) error {
	_, err := s.edit(key, func(old *resource.Resource) (*resource.Resource, error) {
		return nil, Expect(old, versionOf(old), ifVersion)
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// edit replaces the resource of key by the result of edit (nil deletes), and starts over after another write.
func (s *Store) edit(key resource.Key, edit func(old *resource.Resource) (*resource.Resource, error)) (string, error) {
	if !slices.ContainsFunc(s.schemas, func(schema *resource.Schema) bool { return schema.Kind == key.Kind }) {
		return "", ErrUnknownKind
	}
	for {
		old := s.Get(key)
		object, err := edit(old)
		if err != nil {
			return "", err
		}
		if !s.CompareAndSwap(key, old, object) {
			continue
		}
		if object == nil {
			return "", nil
		}
		return object.Version(), nil
	}
}

func versionOf(object *resource.Resource) string {
	if object == nil {
		return ""
	}
	return object.Version()
}

// Expect checks the conditions of a change of old, which has a version: that there is one, and that its version is
// ifVersion, unless that is empty.
func Expect(old *resource.Resource, version, ifVersion string) error {
	switch {
	case old == nil:
		return ErrNotFound
	case ifVersion != "" && ifVersion != version:
		return fmt.Errorf("%w: it is %s, not %s", ErrConflict, version, ifVersion)
	default:
		return nil
	}
}

// Edited returns the result of edit for old, if Patch can store it.
func Edited(old *resource.Resource, edit func(*resource.Resource) (*resource.Resource, error)) (*resource.Resource,
	error,
) {
	object, err := edit(old)
	switch {
	case err != nil:
		return nil, err
	case object == nil:
		return nil, errors.New("the edit returned no resource")
	case object.Key() != old.Key():
		return nil, fmt.Errorf("the edit renamed it to %s", object.Key())
	}
	return object, nil
}

var _ interface {
	ConfigStoreController
	Reader
} = (*Store)(nil)
