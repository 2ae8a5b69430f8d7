package kube

import (
	"encoding/json"
	"fmt"
	"maps"
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
	*Services
	streams []*stream
	all     map[string]*mapping.Input // by namespace/name of the Service, which may be missing
	owners  map[string]string         // of slices: that name, by theirs
	nodes   map[string]*mapping.Node
	dirty   map[string]bool // Services to be mapped
}

func newServices(r *run) *services {
	s := &services{
		run: r, Services: r.settings.Services, all: make(map[string]*mapping.Input), owners: make(map[string]string),
		nodes: make(map[string]*mapping.Node), dirty: make(map[string]bool),
	}
	read := func(k kind) { s.streams = append(s.streams, r.add(&k)...) }
	v1 := []string{"v1"}
	read(kind{plural: "services", versions: v1, fixed: true, use: objects[mapping.Service]{serviceGroup, s.service}})
	if s.Endpoints != mapping.EndpointsLoadBalancer {
		read(kind{group: "discovery.k8s.io", plural: "endpointslices", versions: v1, fixed: true, use: objects[mapping.Slice]{"", s.slice}})
	}
	if s.Endpoints == mapping.EndpointsNodePorts || s.Nodes {
		read(kind{plural: "nodes", versions: v1, fixed: true, cluster: true, use: objects[mapping.Node]{"", s.node}})
	}
	if s.Export == mapping.ExportServiceExports {
		versions := []string{"v1", "v1beta1", "v1alpha1"}
		read(kind{group: "multicluster.x-k8s.io", plural: "serviceexports", versions: versions, use: objects[struct{}]{"", s.export}})
	}
	return s
}

// objects are decoded as T and handed on; nil says that one is gone.
type objects[T any] struct {
	group string
	hand  func(key string, object *T)
}

func (o objects[T]) groups() string { return o.group }

func (o objects[T]) drop(key string) { o.hand(key, nil) }

func (o objects[T]) put(m meta, object json.RawMessage) (take func(), err error) {
	made := new(T)
	if err := json.Unmarshal(object, made); err != nil {
		return nil, fmt.Errorf("read %s: %w", m.key(), err)
	}
	return func() { o.hand(m.key(), made) }, nil
}

// changed returns what a Service is mapped from, to change it.
func (s *services) changed(key string) *mapping.Input {
	s.dirty[key] = true
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
	if object != nil && object.Meta.Labels.Service != "" {
		owner := object.Meta.Namespace + "/" + object.Meta.Labels.Service
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
		s.dirty[of] = true
	}
}

// contents maps what has changed. Until all is known that the Services of a namespace are made of, they stay as they are.
func (s *services) contents(now time.Time) (contents []sources.Content) {
	for _, key := range slices.Sorted(maps.Keys(s.dirty)) {
		namespace, _, _ := strings.Cut(key, "/")
		if slices.ContainsFunc(s.streams, func(of *stream) bool {
			optional := of.cluster && s.Endpoints != mapping.EndpointsNodePorts
			return (of.namespace == "" || of.namespace == namespace) && !of.known(now, optional)
		}) {
			continue
		}
		delete(s.dirty, key)
		contents = append(contents, s.content(key))
	}
	return contents
}

func (s *services) content(key string) (content sources.Content) {
	of := s.all[key]
	if of.Service != nil {
		origin := s.origin("Service", meta{Namespace: of.Service.Meta.Namespace, Name: of.Service.Meta.Name})
		var err error
		if content, err = s.mapper.Map(*of); err != nil {
			content.Rejects = []sources.Reject{{Origin: origin, Err: err}}
		}
		for i, r := range content.Resources {
			content.Resources[i] = r.WithOrigin(origin)
		}
	} else if len(of.Slices) == 0 && !of.Exported {
		delete(s.all, key)
	}
	content.Group = serviceGroup + key
	return content
}
