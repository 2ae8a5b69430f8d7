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

// addIstioKinds adds the kinds of Istio. Their objects are published unchanged.
func (r *run) addIstioKinds() {
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
		kinds = []*kind{r.addKind(wanted, func(meta meta, object json.RawMessage) {
			content := r.istioContent(schema.Kind, meta, object)
			r.pending[prefix+meta.key] = func() (sources.Content, bool) {
				return content, object != nil || r.areComplete(kinds, meta.key)
			}
		})}
	}
}

// istioContent decodes an object, if there is one.
func (r *run) istioContent(kind resource.Kind, meta meta, object json.RawMessage) (content sources.Content) {
	var docs []resource.Document
	origin := r.origin(string(kind), meta)
	revision := meta.Labels[resource.RevisionLabel]
	if object != nil && (r.settings.Revision == "" || revision == "" || revision == r.settings.Revision) {
		docs = resource.Decode(".json", object, r.decode)
	}
	for _, document := range docs {
		for _, problem := range slices.Concat(document.Errors, document.Warnings) {
			problem.Origin = origin
		}
		for _, warning := range document.Warnings {
			content.Warnings = append(content.Warnings, warning.Error())
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

// origin returns the place of an object in messages.
func (r *run) origin(kind string, m meta) resource.Origin {
	return resource.Origin{Place: fmt.Sprintf("%s %s %s", r.shownAddress, kind, m.key)}
}

// addDerivedKinds adds the kinds of other APIs that are converted to Istio's. After a change, all objects are derived
// again once all were read. The derived objects of an earlier run stay until then.
func (r *run) addDerivedKinds() {
	r.derived = derive.NewSet(*r.settings.Derive)
	var kinds []*kind
	wrong := make(map[resource.Key]string) // messages about objects that cannot be decoded
	content := func() (result sources.Content, changed bool) {
		if !r.areComplete(kinds, allKeys) {
			return result, false
		}
		result, changed = r.derived.Content(func() string { return "" })
		if changed {
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
			document := resource.Other{APIVersion: derived.Versions[0], JSON: object} // only these versions are requested
			content := sources.Content{Others: []sources.Other{
				{Other: document, Key: key, Origin: r.origin(derived.Kind, meta)},
			}}
			r.derived.Replace(key.String(), &content)
			for _, reject := range content.Rejects {
				wrong[key] = reject.Err.Error() + ": the version before it counts"
			}
		}
		read := r.addKind(kind{
			group: derived.Group, plural: derived.Plural, versions: derived.Versions, cluster: !derived.Namespaced,
		}, take)
		kinds = append(kinds, read)
		if derived.Kind != "Service" { // other handlers add it
			read.reuse = take
			read.savedObject = func(m meta) json.RawMessage { return r.derived.Text(named(m).String()) }
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
	run      *run
	kinds    []*kind
	inputs   map[string]*mapping.Input // by namespace/name of the Service, which may be missing
	slices   map[string]*mapping.Slice // by namespace/name
	nodes    map[string]*mapping.Node
	accounts map[string]string // accounts of Pods, by namespace/name; nil without ServiceAccounts
	lacking  map[string]bool   // Services that have an endpoint with an unread account
}

// addServiceKinds adds the kinds for ServiceEntries.
func (r *run) addServiceKinds() {
	services := &services{
		run: r, inputs: make(map[string]*mapping.Input), slices: make(map[string]*mapping.Slice),
		nodes: make(map[string]*mapping.Node), lacking: make(map[string]bool),
	}
	options := r.settings.Services
	coreAPI := []string{"v1"}
	byNode := options.Endpoints == mapping.EndpointsNodePorts
	read := func(added kind, handler handler) {
		services.kinds = append(services.kinds, r.addKind(added, handler))
	}
	read(kind{plural: "services", versions: coreAPI, prefix: "Service/", sameName: true}, decoded(services.handleService))
	if options.Endpoints != mapping.EndpointsLoadBalancer {
		serviceOf := func(m meta) string {
			if slice := services.slices[m.key]; slice != nil {
				return m.Namespace + "/" + slice.Meta.Labels.Service
			}
			return ""
		}
		read(kind{
			group: "discovery.k8s.io", plural: "endpointslices", versions: coreAPI, required: true, serviceOf: serviceOf,
		}, decoded(services.handleSlice))
	}
	if byNode || options.Nodes {
		read(kind{plural: "nodes", versions: coreAPI, cluster: true, required: byNode}, decoded(services.handleNode))
	}
	if options.ServiceAccounts && r.mapper.Endpoints == mapping.EndpointsPods {
		services.accounts = make(map[string]string)
		read(kind{plural: "pods", versions: coreAPI, trim: trimmed[mapping.Pod]}, decoded(services.handlePod))
	}
	if options.Export == mapping.ExportServiceExports {
		versions := []string{"v1", "v1beta1", "v1alpha1"}
		exports := kind{group: "multicluster.x-k8s.io", plural: "serviceexports", versions: versions, sameName: true}
		read(exports, decoded(services.handleExport))
	}
}

// decoded decodes objects as T for a handler; nil means a deletion. Objects of the API server always decode.
func decoded[T any](handle func(key string, object *T)) handler {
	return func(meta meta, object json.RawMessage) {
		var decoded *T
		if object == nil || json.Unmarshal(object, &decoded) == nil {
			handle(meta.key, decoded)
		}
	}
}

// trimmed drops all fields that T does not have.
func trimmed[T any](object json.RawMessage) json.RawMessage {
	var read T
	_ = json.Unmarshal(object, &read)
	text, _ := json.Marshal(read) // plain data: it cannot fail
	return text
}

// inputToChange returns the input of a Service, which the caller changes. The Service is published again.
func (s *services) inputToChange(key string) *mapping.Input {
	s.run.pending["Service/"+key] = func() (content sources.Content, ready bool) {
		ready = s.run.areComplete(s.kinds, key)
		if ready {
			content = s.content(key)
		}
		return content, ready
	}
	if s.inputs[key] == nil {
		s.inputs[key] = &mapping.Input{Nodes: s.nodes, Accounts: s.accounts}
	}
	return s.inputs[key]
}

func (s *services) handleService(key string, object *mapping.Service) {
	s.inputToChange(key).Service = object
	if object != nil {
		object.Intern()
	}
}

func (s *services) handleExport(key string, object *struct{}) {
	s.inputToChange(key).Exported = object != nil
}

func (s *services) handleSlice(key string, object *mapping.Slice) {
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
		input.Slices = append(input.Slices, object)
		s.slices[key] = object
	}
}

// handleNode handles a node. Most events change only its status, and are ignored.
func (s *services) handleNode(key string, object *mapping.Node) {
	name := strings.TrimPrefix(key, "/")
	if object != nil && reflect.DeepEqual(object, s.nodes[name]) {
		return
	}
	s.nodes[name] = object
	if object == nil {
		delete(s.nodes, name)
	}
	for service := range s.inputs {
		s.inputToChange(service)
	}
}

// handlePod handles the account of a Pod. Most events change only its status, and are ignored.
func (s *services) handlePod(key string, object *mapping.Pod) {
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
		return s.run.mapper.Map(*input)
	}
	if len(input.Slices) == 0 && !input.Exported {
		delete(s.inputs, key)
	}
	return content
}
