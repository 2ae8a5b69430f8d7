package consulkv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
)

// writeTimeout limits a mutator. Mutators of a config store have no context.
const writeTimeout = 15 * time.Second

// change replaces the object of key by the result of f (nil deletes) for the object (nil without one) and its version.
// After another write, it starts over with the newer object. An error begins with what.
func (s *Store) change(
	operation string, key resource.Key, f func(old *resource.Resource, version string) (*resource.Resource, error),
) (
	version string, err error,
) {
	defer func() {
		if err != nil {
			version, err = "", fmt.Errorf("%s %s: %w", operation, key, err)
		}
	}()
	if !slices.ContainsFunc(s.Schemas(), func(schema *resource.Schema) bool { return schema.Kind == key.Kind }) {
		return "", memstore.ErrUnknownKind
	}
	ctx, cancel := dial.Within(context.Background(), writeTimeout)
	defer cancel()
	if !s.table.Synced() { // any key may have the object
		if err := s.Refresh(ctx); err != nil {
			return "", err
		}
	}
	for {
		v, err := s.open(ctx, key)
		if err != nil {
			return "", err
		}
		old, version := s.object(v, key)
		r, err := f(old, version)
		if err != nil {
			return "", err
		}
		if r != nil && old != nil {
			if !old.Created().IsZero() {
				r = r.WithCreated(old.Created())
			}
			if resource.Equal(old, r) {
				return version, nil
			}
		}
		index, err := s.write(ctx, v, key, r)
		switch {
		case errors.Is(err, errStale):
			continue
		case err != nil || r == nil:
			return "", err
		}
		return versionOf(index), nil
	}
}

// open reads the key of an object, or the key for a new one.
func (s *Store) open(ctx context.Context, object resource.Key) (*api.KVPair, error) {
	for {
		s.mu.Lock()
		key := s.mirror.home(object)
		s.mu.Unlock()
		found := key != ""
		if !found {
			var err error
			if key, err = s.place.keyOf(object); err != nil {
				return nil, err
			}
		}
		v, err := s.get(ctx, key)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		home := s.mirror.home(object)
		s.mu.Unlock()
		if home == key || home == "" && !found { // it is still in that key
			return v, nil
		}
	}
}

// get reads a key and updates the mirror. A missing key has no index.
func (s *Store) get(ctx context.Context, key string) (*api.KVPair, error) {
	pair, meta, err := s.place.client.KV().Get(key, confirmed.WithContext(ctx))
	if err != nil {
		return nil, s.failed(ctx, "read", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pair == nil {
		s.mirror.noteAbsent(key, meta.LastIndex)
		return &api.KVPair{Key: key}, nil
	}
	s.mirror.note(key, s.place.entryOf(pair))
	return pair, nil
}

// object returns the object of key in v, and its version.
func (s *Store) object(v *api.KVPair, key resource.Key) (*resource.Resource, string) {
	for _, r := range s.place.parse(v.Key, v.Value).Resources {
		if r.Key() == key {
			return r, versionOf(v.ModifyIndex)
		}
	}
	return nil, ""
}

// errStale says that another write was faster.
var errStale = errors.New("index is stale")

// write replaces the object of key in the value v by r, or deletes it if r is nil, unless the value has changed.
func (s *Store) write(ctx context.Context, v *api.KVPair, key resource.Key, r *resource.Resource) (index uint64,
	err error,
) {
	var text []byte
	if r == nil {
		text, err = s.place.without(v.Key, v.Value, key)
	} else {
		text, err = s.place.replace(v.Key, v.Value, r)
	}
	if err != nil {
		return 0, err
	}
	// flags of another program stay
	op := &api.KVTxnOp{Verb: api.KVCAS, Key: v.Key, Value: text, Index: v.ModifyIndex, Flags: v.Flags}
	if text == nil {
		op = &api.KVTxnOp{Verb: api.KVDeleteCAS, Key: v.Key, Index: v.ModifyIndex}
	}
	if index, err = s.commit(ctx, op); err != nil {
		return 0, s.failed(ctx, "write", v.Key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == nil {
		s.mirror.noteDeleted(v.Key, v.ModifyIndex)
	} else {
		s.mirror.note(v.Key, s.place.entryOf(&api.KVPair{Key: v.Key, Value: text, ModifyIndex: index}))
	}
	return index, nil
}

// commit runs one operation as a transaction. Unlike a plain write, its answer has the new index.
func (s *Store) commit(ctx context.Context, op *api.KVTxnOp) (index uint64, err error) {
	ok, resp, _, err := s.place.client.Txn().Txn(api.TxnOps{{KV: op}}, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return 0, err
	case ok && op.Verb == api.KVDeleteCAS:
		return 0, nil
	case ok && len(resp.Results) == 1 && resp.Results[0].KV != nil:
		return resp.Results[0].KV.ModifyIndex, nil
	}
	for _, e := range resp.Errors {
		switch {
		case strings.Contains(e.What, "index is stale"):
			return 0, errStale
		case strings.Contains(e.What, "Permission denied"): // Consul sends it with the status of a conflict
			return 0, api.StatusError{Code: http.StatusForbidden, Body: e.What}
		}
		err = errors.Join(err, errors.New(e.What))
	}
	if err == nil {
		err = errors.New("the answer does not say what was done")
	}
	return 0, err
}

// failed returns an error with the operation, the place and a remedy.
func (s *Store) failed(ctx context.Context, operation, key string, err error) error {
	if errors.Is(err, errStale) {
		return err
	}
	wrapped := fmt.Errorf("%s: %s key %s: %w", s.place.shown, operation, key, dial.Explain(ctx, err))
	if dial.Classify(err).State() == sources.Denied {
		wrapped = fmt.Errorf(`%w; it needs key_prefix "%s" { policy = "%s" }`, wrapped, s.place.prefix, operation)
	}
	return wrapped
}
