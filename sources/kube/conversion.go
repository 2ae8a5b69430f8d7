package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unique"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/kube/mapping"
)

// readRules adds the kinds of Istio. Their objects are published unchanged.
func (r *run) readRules() {
	for _, schema := range resource.Schemas() {
		if schema.Bare || len(r.settings.Kinds) > 0 && !slices.Contains(r.settings.Kinds, string(schema.Kind)) {
			continue
		}
		prefix := string(schema.Kind) + "/"
		wanted := kind{
			group: schema.Group, plural: schema.Plural, versions: schema.Versions, selector: r.settings.LabelSelector,
			prefix: prefix,
		}
		wanted.policies = resource.Restricts(schema.Kind)
		var kinds []*kind
		kinds = []*kind{r.read(wanted, func(m meta, object json.RawMessage) {
			c := r.rule(schema.Kind, m, object)
			r.pending[prefix+m.key] = func() (sources.Content, bool) { return c, object != nil || r.known(kinds, m.key) }
		})}
	}
}

// rule decodes an object, if there is one.
func (r *run) rule(kind resource.Kind, meta meta, object json.RawMessage) (content sources.Content) {
	var docs []resource.Document
	rev, origin := meta.Labels[resource.RevisionLabel], r.origin(string(kind), meta)
	if object != nil && (r.settings.Revision == "" || rev == "" || rev == r.settings.Revision) {
		docs = resource.Decode(".json", object, r.decode)
	}
	for _, document := range docs {
		for _, e := range slices.Concat(document.Errors, document.Warnings) {
			e.Origin = origin
		}
		for _, w := range document.Warnings {
			content.Warnings = append(content.Warnings, w.Error())
		}
		if len(document.Errors) > 0 {
			key := resource.Key{Kind: kind, Namespace: meta.Namespace, Name: meta.Name}
			content.Rejects = append(content.Rejects, sources.Reject{Key: key, Origin: origin, Err: document.Errors})
		} else if document.Resource != nil {
			content.Resources = append(content.Resources, document.Resource.WithOrigin(origin))
		}
	}
	return content
}

// origin returns the place of an object, for people.
func (r *run) origin(kind string, m meta) resource.Origin {
	return resource.Origin{Place: fmt.Sprintf("%s %s %s", r.shown, kind, m.key)}
}

// readDerived adds the kinds of other APIs that are converted to Istio's. After a change, all is derived again once all
// objects are known. The derived objects of an earlier run stay until then.
func (r *run) readDerived() {
	r.derived = derive.NewSet(*r.settings.Derive)
	var kinds []*kind
	wrong := make(map[resource.Key]string) // objects that cannot be decoded
	content := func() (result sources.Content, changed bool) {
		if !r.known(kinds, "") {
			return result, false
		}
		if result, changed = r.derived.Content(func() string { return "" }); changed {
			result.Warnings = slices.Sorted(slices.Values(slices.AppendSeq(result.Warnings, maps.Values(wrong))))
		}
		return result, changed
	}
	r.pending[derive.Group] = content
	for _, derived := range derive.Kinds {
		if derived.Kind == "Service" && !r.settings.Derive.AllServices {
			continue
		}
		named := func(m meta) resource.Key {
			return resource.Key{Kind: resource.Kind(derived.Kind), Namespace: m.Namespace, Name: m.Name}
		}
		take := func(meta meta, object json.RawMessage) {
			r.pending[derive.Group] = content
			key := named(meta)
			delete(wrong, key)
			if object == nil {
				r.derived.Remove(key.String())
				return
			}
			other := resource.Other{APIVersion: derived.Versions[0], JSON: object} // only known versions are requested
			c := sources.Content{Others: []sources.Other{{Other: other, Key: key, Origin: r.origin(derived.Kind, meta)}}}
			r.derived.Replace(key.String(), &c)
			for _, reject := range c.Rejects {
				wrong[key] = reject.Err.Error() + ": the version before it counts"
			}
		}
		read := r.read(kind{
			group: derived.Group, plural: derived.Plural, versions: derived.Versions, cluster: !derived.Namespaced,
		}, take)
		if kinds = append(kinds, read); derived.Kind != "Service" { // other handlers add it
			read.reuse, read.text = take, func(m meta) json.RawMessage { return r.derived.Text(named(m).String()) }
		}
	}
}

// Services are the settings of Services and their ServiceEntries.
type Services struct {
	mapping.Options
	// Nodes reads the nodes of the cluster for the regions of endpoints. Endpoints nodePorts needs them.
	Nodes bool
	// ServiceAccounts reads the Pods for the service accounts of endpoints.
	ServiceAccounts bool
}

// services has the inputs of ServiceEntries. run.mu guards it.
type services struct {
	*run
	kinds    []*kind
	inputs   map[string]*mapping.Input // by namespace/name of the Service, which may be missing
	slices   map[string]*mapping.Slice // by namespace/name
	nodes    map[string]*mapping.Node
	accounts map[string]string // of Pods, by namespace/name; nil without ServiceAccounts
	lacking  map[string]bool   // Services with an unknown account
}

// readServices adds the kinds for ServiceEntries.
func (r *run) readServices() {
	services := &services{
		run: r, inputs: make(map[string]*mapping.Input), slices: make(map[string]*mapping.Slice),
		nodes: make(map[string]*mapping.Node), lacking: make(map[string]bool),
	}
	options := r.settings.Services
	coreAPI, byNode := []string{"v1"}, options.Endpoints == mapping.EndpointsNodePorts
	read := func(k kind, u handler) { services.kinds = append(services.kinds, r.read(k, u)) }
	read(kind{plural: "services", versions: coreAPI, prefix: "Service/", alike: true}, decoded(services.service))
	if options.Endpoints != mapping.EndpointsLoadBalancer {
		service := func(m meta) (text json.RawMessage) {
			if slice := services.slices[m.key]; slice != nil {
				text, _ = json.Marshal(m.Namespace + "/" + slice.Meta.Labels.Service)
			}
			return text
		}
		slices := kind{group: "discovery.k8s.io", plural: "endpointslices", versions: coreAPI, required: true, text: service}
		read(slices, decoded(services.slice))
	}
	if byNode || options.Nodes {
		read(kind{plural: "nodes", versions: coreAPI, cluster: true, required: byNode}, decoded(services.node))
	}
	if options.ServiceAccounts && r.mapper.Endpoints == mapping.EndpointsPods {
		services.accounts = make(map[string]string)
		read(kind{plural: "pods", versions: coreAPI, trim: trimmed[mapping.Pod]}, decoded(services.pod))
	}
	if options.Export == mapping.ExportServiceExports {
		versions := []string{"v1", "v1beta1", "v1alpha1"}
		exports := kind{group: "multicluster.x-k8s.io", plural: "serviceexports", versions: versions, alike: true}
		read(exports, decoded(services.export))
	}
}

// decoded decodes objects as T for a handler; nil means a deletion. Objects of the API server always decode.
func decoded[T any](hand func(key string, object *T)) handler {
	return func(meta meta, object json.RawMessage) {
		var made *T
		if object == nil || json.Unmarshal(object, &made) == nil {
			hand(meta.key, made)
		}
	}
}

// trimmed drops all fields that T does not have.
func trimmed[T any](object json.RawMessage) json.RawMessage {
	var read T
	_ = json.Unmarshal(object, &read)
	text, _ := json.Marshal(read) // texts
	return text
}

// inputToChange returns the inputs of a Service, for a change.
func (s *services) inputToChange(key string) *mapping.Input {
	s.pending["Service/"+key] = func() (content sources.Content, ready bool) {
		if ready = s.known(s.kinds, key); ready {
			content = s.content(key)
		}
		return content, ready
	}
	if s.inputs[key] == nil {
		s.inputs[key] = &mapping.Input{Nodes: s.nodes, Accounts: s.accounts}
	}
	return s.inputs[key]
}

func (s *services) service(key string, object *mapping.Service) {
	if s.inputToChange(key).Service = object; object != nil {
		object.Intern()
	}
}

func (s *services) export(key string, object *struct{}) {
	s.inputToChange(key).Exported = object != nil
}

func (s *services) slice(key string, object *mapping.Slice) {
	namespace, _, _ := strings.Cut(key, "/")
	if old := s.slices[key]; old != nil {
		input := s.inputToChange(namespace + "/" + old.Meta.Labels.Service)
		input.Slices = slices.DeleteFunc(input.Slices, func(o *mapping.Slice) bool { return o == old })
		delete(s.slices, key)
	}
	if object != nil && object.Meta.Labels.Service != "" {
		if s.accounts == nil {
			object.Endpoints.Pods = nil
		}
		input := s.inputToChange(namespace + "/" + object.Meta.Labels.Service)
		input.Slices, s.slices[key] = append(input.Slices, object), object
	}
}

// node handles a node. Most changes are of its status, and are ignored.
func (s *services) node(key string, object *mapping.Node) {
	name := strings.TrimPrefix(key, "/")
	if object != nil && reflect.DeepEqual(object, s.nodes[name]) {
		return
	}
	if s.nodes[name] = object; object == nil {
		delete(s.nodes, name)
	}
	for service := range s.inputs {
		s.inputToChange(service)
	}
}

// pod handles the account of a Pod. Most changes are of its status, and are ignored.
func (s *services) pod(key string, object *mapping.Pod) {
	if object == nil {
		delete(s.accounts, key)
	} else if account := object.Spec.ServiceAccountName; account != s.accounts[key] {
		s.accounts[key] = unique.Make(account).Value()
		for service := range s.lacking {
			s.inputToChange(service)
		}
		clear(s.lacking)
	}
}

// content maps a Service.
func (s *services) content(key string) (content sources.Content) {
	input := s.inputs[key]
	if input.Lacks() {
		s.lacking[key] = true
	}
	if input.Service != nil {
		return s.mapper.Map(*input)
	}
	if len(input.Slices) == 0 && !input.Exported {
		delete(s.inputs, key)
	}
	return content
}
