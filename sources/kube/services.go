package kube

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"tributary/sources"
	"tributary/sources/kube/mapping"
)

// Services says which Services are read, and what becomes of them.
type Services struct {
	mapping.Options
	// Nodes has the nodes of the cluster read, which have the regions of endpoints. Endpoints nodePorts needs them.
	Nodes bool
}

// serviceGroup is what the names of the groups of Services begin with.
const serviceGroup = "Service/"

// services holds what ServiceEntries are made of. run.mu guards it.
type services struct {
	*run
	kinds  []*kind
	all    map[string]*mapping.Input // by namespace/name of the Service, which may be missing
	owners map[string]string         // of slices: that name, by theirs
	nodes  map[string]*mapping.Node
}

// readServices has the kinds read that ServiceEntries are made of.
func (r *run) readServices() {
	s := &services{run: r, all: make(map[string]*mapping.Input), owners: make(map[string]string), nodes: make(map[string]*mapping.Node)}
	o := r.settings.Services
	v1, byNode := []string{"v1"}, o.Endpoints == mapping.EndpointsNodePorts
	read := func(k kind, u use) { s.kinds = append(s.kinds, r.read(k, u)) }
	read(kind{plural: "services", versions: v1, prefix: serviceGroup}, decoded(s.service))
	if o.Endpoints != mapping.EndpointsLoadBalancer {
		read(kind{group: "discovery.k8s.io", plural: "endpointslices", versions: v1, required: true}, decoded(s.slice))
	}
	if byNode || o.Nodes {
		read(kind{plural: "nodes", versions: v1, cluster: true, required: byNode}, decoded(s.node))
	}
	if o.Export == mapping.ExportServiceExports {
		versions := []string{"v1", "v1beta1", "v1alpha1"}
		read(kind{group: "multicluster.x-k8s.io", plural: "serviceexports", versions: versions}, decoded(s.export))
	}
}

// decoded hands on objects as T; nil says that one is gone.
func decoded[T any](hand func(key string, object *T)) use {
	return func(m meta, object json.RawMessage) (put func(), err error) {
		var made *T
		if object != nil {
			if err = json.Unmarshal(object, &made); err != nil {
				err = fmt.Errorf("read %s: %w", m.key(), err)
			}
		}
		return func() { hand(m.key(), made) }, err
	}
}

// changed returns what a Service is mapped from, to change it.
func (s *services) changed(key string) *mapping.Input {
	namespace, _, _ := strings.Cut(key, "/")
	s.pending[serviceGroup+key] = func(now time.Time) (c sources.Content, ready bool) {
		if ready = s.known(now, s.kinds, namespace); ready {
			c = s.content(key)
		}
		return c, ready
	}
	if s.all[key] == nil {
		s.all[key] = &mapping.Input{Nodes: s.nodes}
	}
	return s.all[key]
}

func (s *services) service(key string, object *mapping.Service) { s.changed(key).Service = object }

func (s *services) export(key string, object *struct{}) { s.changed(key).Exported = object != nil }

func (s *services) slice(key string, object *mapping.Slice) {
	if owner, known := s.owners[key]; known {
		of := s.changed(owner)
		of.Slices = slices.DeleteFunc(of.Slices, func(o *mapping.Slice) bool { return o.Meta.Namespace+"/"+o.Meta.Name == key })
		delete(s.owners, key)
	}
	if object != nil && object.Service() != "" {
		owner := object.Meta.Namespace + "/" + object.Service()
		of := s.changed(owner)
		of.Slices, s.owners[key] = append(of.Slices, object), owner
	}
}

// node takes a node, whose status changes all the time without any news.
func (s *services) node(key string, object *mapping.Node) {
	name := strings.TrimPrefix(key, "/")
	if object != nil && reflect.DeepEqual(object, s.nodes[name]) {
		return
	}
	if s.nodes[name] = object; object == nil {
		delete(s.nodes, name)
	}
	for of := range s.all {
		s.changed(of)
	}
}

// content maps a Service. What is not known of it yet is not there.
func (s *services) content(key string) (c sources.Content) {
	of := s.all[key]
	if of.Service == nil {
		if len(of.Slices) == 0 && !of.Exported {
			delete(s.all, key)
		}
		return c
	}
	c, err := s.mapper.Map(*of)
	origin := s.origin("Service", meta{Namespace: of.Service.Meta.Namespace, Name: of.Service.Meta.Name})
	if err != nil {
		c.Rejects = []sources.Reject{{Origin: origin, Err: err}}
	}
	for i, r := range c.Resources {
		c.Resources[i] = r.WithOrigin(origin)
	}
	return c
}
