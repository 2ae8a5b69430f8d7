package kube

import (
	"context"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// discover finds out which kinds the server has, again and again, until ctx ends. Unless all is well, it takes credentials and addresses
// that are read anew.
func (r *run) discover(ctx context.Context) {
	retry := r.newBackOff()
	for client := (*api)(nil); ctx.Err() == nil; {
		var err error
		if client == nil {
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
		r.found(versions, err)
		wait := r.lookEvery
		if err == nil {
			retry.Reset()
		} else {
			client, wait = nil, retry.NextBackOff()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-r.look:
			client = nil
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

// relook has the kinds looked for now. It does not block.
func (r *run) relook() {
	select {
	case r.look <- struct{}{}:
	default:
	}
}

// found takes over which versions there are, by resource, or that they are not known.
func (r *run) found(versions map[string]string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = err
	r.wakeup.Notify()
	if err != nil {
		return
	}
	for _, s := range r.streams {
		version := versions[s.resource()]
		if version == "" && s.watching {
			continue // it contradicts itself
		}
		r.unkept = r.unkept || s.Absent != (version == "")
		for _, key := range s.setAbsent(time.Now(), version == "", r.settings.Hold) {
			s.use.drop(key)
		}
		if version == "" {
			s.err = nil
			if !s.read && s.Seen > 0 {
				s.unsure = s.Until // an earlier run had some
			}
		}
		if s.version != version {
			s.version = version
			s.tell()
		}
	}
}

// lookAt returns in which version the server has the kinds, by resource: of those that we understand, the first that it names.
func lookAt(ctx context.Context, client *api, kinds []*kind) (map[string]string, error) {
	versions, groups, resources := make(map[string]string), make(map[string]metav1.APIGroup), make(map[string]metav1.APIResourceList)
	for _, k := range kinds {
		if k.fixed {
			versions[k.resource()] = k.versions[0]
			continue
		}
		path := "/apis/" + k.group
		group, err := once(ctx, client, groups, path)
		for _, v := range append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...) {
			if err != nil || versions[k.resource()] != "" || !slices.Contains(k.versions, v.Version) {
				continue
			}
			var list metav1.APIResourceList
			list, err = once(ctx, client, resources, path+"/"+v.Version)
			if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == k.plural }) {
				versions[k.resource()] = v.Version
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if len(groups) == 0 { // to know that the server is there
		_, err := once(ctx, client, make(map[string]struct{}), "/version")
		return versions, err
	}
	return versions, nil
}

// once asks for a path unless its answer is known already. What is missing is empty.
func once[T any](ctx context.Context, client *api, known map[string]T, path string) (answer T, err error) {
	answer, asked := known[path]
	if !asked {
		if err = client.exchange(ctx, http.MethodGet, path, nil, "", &answer); apierrors.IsNotFound(err) {
			err = nil
		}
		known[path] = answer
	}
	return answer, err
}
