package consulkv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
)

// writeTimeout limits a mutator. Mutators of a config store have no context.
const writeTimeout = 15 * time.Second

// change replaces the object of key by the result of edit; nil deletes it. edit receives the object, or nil, and its
// version. After another write, change starts over with the newer object. An error begins with the operation.
func (s *Store) change(
	operation string, key resource.Key, edit func(old *resource.Resource, version string) (*resource.Resource, error),
) (version string, err error) {
	defer func() {
		if err != nil {
			version = ""
			err = fmt.Errorf("%s %s: %w", operation, key, err)
		}
	}()
	ctx, cancel := dial.Within(context.Background(), writeTimeout)
	defer cancel()
	if s.entries == nil { // any key may have the object
		if err := s.Refresh(ctx); err != nil {
			return "", err
		}
	}
	for {
		pair, err := s.readKeyOf(ctx, key)
		if err != nil {
			return "", err
		}
		old := s.entries[pair.Key].objects[key]
		version := ""
		if old != nil {
			version = s.entries[pair.Key].version
		}
		object, err := edit(old, version)
		if err != nil {
			return "", err
		}
		if object != nil && old != nil {
			if !old.Created().IsZero() {
				object = object.WithCreated(old.Created())
			}
			if resource.Equal(old, object) {
				return version, nil
			}
		}
		if err = s.write(ctx, pair, key, object); !errors.Is(err, errStale) {
			return s.entries[pair.Key].version, err
		}
	}
}

// readKeyOf reads the key that has an object, or the key for a new object. A missing key has no index.
func (s *Store) readKeyOf(ctx context.Context, object resource.Key) (*api.KVPair, error) {
	for {
		before := s.keyWith(object)
		key := before
		if key == "" {
			var err error
			if key, err = s.place.keyOf(object); err != nil {
				return nil, err
			}
		}
		pair, _, err := s.place.client.KV().Get(key, confirmed.WithContext(ctx))
		if err != nil {
			return nil, s.failed(ctx, "read", key, err)
		}
		if pair == nil {
			pair = &api.KVPair{Key: key}
		}
		s.set(pair)
		if now := s.keyWith(object); now == key || now == before { // it is still in that key
			return pair, nil
		}
	}
}

// errStale says that another write was faster.
var errStale = errors.New("index is stale")

// write replaces the object of key in a value by r, or deletes it if r is nil, unless the value has changed.
func (s *Store) write(ctx context.Context, pair *api.KVPair, key resource.Key, r *resource.Resource) error {
	text, err := s.place.replace(pair.Key, pair.Value, key, r)
	if err != nil {
		return err
	}
	// Flags of another program stay.
	kvTxnOp := &api.KVTxnOp{Verb: api.KVCAS, Key: pair.Key, Value: text, Index: pair.ModifyIndex, Flags: pair.Flags}
	if text == nil {
		kvTxnOp = &api.KVTxnOp{Verb: api.KVDeleteCAS, Key: pair.Key, Index: pair.ModifyIndex}
	}
	index, err := s.commit(ctx, kvTxnOp)
	if err != nil {
		return s.failed(ctx, "write", pair.Key, err)
	}
	s.set(&api.KVPair{Key: pair.Key, Value: text, ModifyIndex: index})
	return nil
}

// commit runs one operation as a transaction. Unlike a plain write, its answer has the new index.
func (s *Store) commit(ctx context.Context, kvTxnOp *api.KVTxnOp) (index uint64, err error) {
	ok, resp, _, err := s.place.client.Txn().Txn(api.TxnOps{{KV: kvTxnOp}}, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return 0, err
	case ok && kvTxnOp.Verb == api.KVDeleteCAS:
		return 0, nil
	case ok && len(resp.Results) == 1 && resp.Results[0].KV != nil:
		return resp.Results[0].KV.ModifyIndex, nil
	}
	for _, txnError := range resp.Errors {
		switch {
		case strings.Contains(txnError.What, "index is stale"):
			return 0, errStale
		case strings.Contains(txnError.What, "Permission denied"): // Consul sends it with the status of a conflict
			return 0, api.StatusError{Code: http.StatusForbidden, Body: txnError.What}
		}
		err = errors.Join(err, errors.New(txnError.What))
	}
	if err == nil {
		err = errors.New("the answer does not name the result of the write")
	}
	return 0, err
}

// failed returns an error with the operation, the place and a remedy.
func (s *Store) failed(ctx context.Context, operation, key string, err error) error {
	if errors.Is(err, errStale) {
		return err
	}
	wrapped := fmt.Errorf("%s: %s key %s: %w", s.place.name, operation, key, dial.Explain(ctx, err))
	if dial.Classify(err).State() == sources.Denied {
		wrapped = fmt.Errorf(`%w; it needs key_prefix "%s" { policy = "%s" }`, wrapped, s.place.prefix, operation)
	}
	return wrapped
}
