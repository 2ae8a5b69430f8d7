package kube

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// discover finds out which kinds the server has, again and again, until ctx ends.
func (r *run) discover(ctx context.Context) {
	retry := r.newBackOff()
	for client, stale := (*api)(nil), false; ctx.Err() == nil; {
		var err error
		if client == nil || stale {
			client, err = r.cluster.connect()
		}
		var versions map[string]string
		if err == nil {
			r.setClient(client)
			versions, err = lookAt(ctx, client, r.kinds)
		}
		if ctx.Err() != nil {
			return
		}
		wait := r.lookEvery
		if err == nil {
			stale = false
			retry.Reset()
		} else {
			wait, stale = retry.NextBackOff(), true // the kubeconfig may have changed
		}
		r.found(versions, err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case stale = <-r.look:
		}
	}
}

// setClient makes client the one that all use.
func (r *run) setClient(client *api) {
	r.mu.Lock()
	before := r.client
	r.client = client
	r.mu.Unlock()
	if before != nil && before != client {
		before.close()
	}
}

// relook has the kinds looked for, with credentials that are read anew if those at hand are stale.
func (r *run) relook(stale bool) {
	select {
	case r.look <- stale:
	default:
	}
}

// found takes over which versions there are, by resource, or that they are not known.
func (r *run) found(versions map[string]string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = err
	now := time.Now()
	for _, s := range r.streams {
		if err != nil {
			break
		}
		version := versions[s.resource()]
		if version == "" && s.watching {
			continue // it contradicts itself
		}
		was := s.absent
		for _, key := range s.setAbsent(now, version == "", r.settings.Hold) {
			s.use.drop(key)
		}
		r.unkept = r.unkept || !s.absent.Equal(was)
		if version == "" && !s.read && s.seen > 0 {
			s.unsure = s.until // an earlier run had some
		}
		if version == "" {
			s.err = nil
		}
		if s.version != version || !s.looked {
			s.version, s.looked = version, true
			s.tell()
		}
	}
	r.wakeup.Notify()
}

// lookAt returns in which version the server has the kinds, by resource: of those that we understand, the first that it names.
func lookAt(ctx context.Context, client *api, kinds []*kind) (map[string]string, error) {
	versions := make(map[string]string)
	groups := make(map[string][]*kind)
	for _, k := range kinds {
		if k.fixed {
			versions[k.resource()] = k.versions[0]
		} else {
			groups[k.group] = append(groups[k.group], k)
		}
	}
	for group, wanted := range groups {
		if err := lookInto(ctx, client, group, wanted, versions); err != nil {
			return nil, err
		}
	}
	if len(groups) == 0 { // to know that the server is there
		var version struct{}
		return versions, client.exchange(ctx, http.MethodGet, "/version", nil, &version)
	}
	return versions, nil
}

func lookInto(ctx context.Context, client *api, group string, wanted []*kind, versions map[string]string) error {
	type named struct{ Version string }
	var served struct {
		Versions         []named
		PreferredVersion named
	}
	path := "/apis/" + group
	if err := client.exchange(ctx, http.MethodGet, path, nil, &served); err != nil {
		return unlessMissing(err)
	}
	for _, v := range append([]named{served.PreferredVersion}, served.Versions...) {
		if !slices.ContainsFunc(wanted, func(k *kind) bool { return versions[k.resource()] == "" && slices.Contains(k.versions, v.Version) }) {
			continue
		}
		var list struct{ Resources []struct{ Name string } }
		if err := client.exchange(ctx, http.MethodGet, path+"/"+v.Version, nil, &list); unlessMissing(err) != nil {
			return err
		}
		for _, k := range wanted {
			is := func(r struct{ Name string }) bool { return r.Name == k.plural }
			if versions[k.resource()] == "" && slices.Contains(k.versions, v.Version) && slices.ContainsFunc(list.Resources, is) {
				versions[k.resource()] = v.Version
			}
		}
	}
	return nil
}

// unlessMissing returns err, or nil if it only says that there is no such thing.
func unlessMissing(err error) error {
	if isStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}
