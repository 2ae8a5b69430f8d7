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
	needed  []*stream // those without which what is known of a Service is not whole
	useful  []*stream // those that add to it, and may be lacking
	all     map[string]*mapping.Service
	slices  map[string]*mapping.Slice
	of      map[string]map[string]*mapping.Slice // the slices of a Service, by theirs and by its namespace/name
	nodes   map[string]*mapping.Node
	exports map[string]bool
	dirty   map[string]bool // Services to be mapped
}

func newServices(r *run) *services {
	s := &services{
		run: r, all: make(map[string]*mapping.Service), slices: make(map[string]*mapping.Slice), nodes: make(map[string]*mapping.Node),
		of: make(map[string]map[string]*mapping.Slice), exports: make(map[string]bool), dirty: make(map[string]bool),
	}
	add := func(k *kind, needed bool) {
		if all := r.add(k); needed {
			s.needed = append(s.needed, all...)
		} else {
			s.useful = append(s.useful, all...)
		}
	}
	add(&kind{plural: "services", versions: []string{"v1"}, fixed: true, use: objects[mapping.Service]{serviceGroup, s.service}}, true)
	ofServices := r.settings.Services
	if ofServices.Endpoints != mapping.EndpointsLoadBalancer {
		add(&kind{
			group: "discovery.k8s.io", plural: "endpointslices", versions: []string{"v1"}, fixed: true,
			use: objects[mapping.Slice]{"", s.slice},
		}, true)
	}
	if atNodes := ofServices.Endpoints == mapping.EndpointsNodePorts; atNodes || ofServices.Nodes {
		add(&kind{plural: "nodes", versions: []string{"v1"}, fixed: true, cluster: true, use: objects[mapping.Node]{"", s.node}}, atNodes)
	}
	if ofServices.Export == mapping.ExportServiceExports {
		add(&kind{
			group: "multicluster.x-k8s.io", plural: "serviceexports", versions: []string{"v1", "v1beta1", "v1alpha1"},
			use: objects[struct{}]{"", s.export},
		}, true)
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

func (s *services) service(key string, object *mapping.Service) {
	s.dirty[key] = true
	if s.all[key] = object; object == nil {
		delete(s.all, key)
	}
}

func (s *services) slice(key string, object *mapping.Slice) {
	if before := s.slices[key]; before != nil {
		of := before.Meta.Namespace + "/" + before.Service()
		s.dirty[of] = true
		if delete(s.of[of], key); len(s.of[of]) == 0 {
			delete(s.of, of)
		}
		delete(s.slices, key)
	}
	if object == nil || object.Service() == "" {
		return
	}
	of := object.Meta.Namespace + "/" + object.Service()
	s.dirty[of], s.slices[key] = true, object
	if s.of[of] == nil {
		s.of[of] = make(map[string]*mapping.Slice)
	}
	s.of[of][key] = object
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

func (s *services) export(key string, object *struct{}) {
	s.dirty[key] = true
	if s.exports[key] = object != nil; object == nil {
		delete(s.exports, key)
	}
}

// known reports whether all is known that the Services of a namespace are made of. Until it is, they stay as they are.
func (s *services) known(namespace string, now time.Time) bool {
	return !slices.ContainsFunc(s.needed, func(of *stream) bool {
		return (of.namespace == "" || of.namespace == namespace) && !of.known(now, false)
	}) && !slices.ContainsFunc(s.useful, func(of *stream) bool { return !of.known(now, true) })
}

// contents maps what has changed and is known.
func (s *services) contents(now time.Time) (contents []sources.Content) {
	for _, key := range slices.Sorted(maps.Keys(s.dirty)) {
		namespace, _, _ := strings.Cut(key, "/")
		if !s.known(namespace, now) {
			continue
		}
		delete(s.dirty, key)
		contents = append(contents, s.content(key))
	}
	return contents
}

func (s *services) content(key string) sources.Content {
	content := sources.Content{Group: serviceGroup + key}
	service := s.all[key]
	if service == nil {
		return content
	}
	origin := s.origin("Service", meta{Namespace: service.Meta.Namespace, Name: service.Meta.Name})
	var of []*mapping.Slice
	for _, name := range slices.Sorted(maps.Keys(s.of[key])) {
		of = append(of, s.of[key][name])
	}
	out, err := s.mapper.Map(mapping.Input{Service: service, Slices: of, Nodes: s.nodes, Exported: s.exports[key]})
	if err != nil {
		content.Rejects = []sources.Reject{{Origin: origin, Err: err}}
	}
	for _, r := range out.Resources {
		content.Resources = append(content.Resources, r.WithOrigin(origin))
	}
	content.LeftOut, content.Warnings = out.LeftOut, out.Warnings
	return content
}
