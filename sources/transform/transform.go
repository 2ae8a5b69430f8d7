package transform

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Apply returns the transformed resource, or nil if it is left out. Its Origin has the rules that changed it. Apply
// keeps a spec that cannot be decoded, so that validation reports it.
func (r *Rules) Apply(object *resource.Resource) *resource.Resource {
	if r == nil {
		return object
	}
	spec := sync.OnceValue(func() proto.Message { // nil if it cannot be decoded
		spec, err := object.Spec()
		if err != nil {
			return nil
		}
		return spec
	})
	if len(r.include) > 0 && !selects(r.include, object, spec) || selects(r.exclude, object, spec) {
		return nil
	}
	meta, body := object.Meta(), object.Body()
	var rules []string
	if to := r.namespace(meta.Key.Namespace); meta.Key.Namespace != "" && to != meta.Key.Namespace {
		rules = add(rules, "namespaces: "+meta.Key.Namespace+" → "+to)
		meta.Key.Namespace = to
	}
	if referring[meta.Key.Kind] && len(r.namespaces)+len(r.hosts) > 0 && spec() != nil {
		rewriter := &rewriter{rules: r}
		rewriter.message(spec().ProtoReflect())
		if rewriter.changed {
			encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec())
			if err != nil {
				return object // decoded messages can be encoded
			}
			body = encoded
		}
		for _, rule := range rewriter.applied {
			rules = add(rules, rule)
		}
	}
	var changes []string
	meta.Labels, changes = r.labels.apply("labels", meta.Labels)
	rules = append(rules, changes...)
	meta.Annotations, changes = r.annotations.apply("annotations", meta.Annotations)
	rules = append(rules, changes...)
	if len(rules) == 0 {
		return object
	}
	meta.Origin.Rules = strings.Join(rules, "; ")
	return resource.FromBody(meta, body).WithOriginal(object)
}

// Key returns the transformed key of a resource that could not be read, and whether the rules may take the resource: a
// selector by labels or hosts may.
func (r *Rules) Key(key resource.Key) (resource.Key, bool) {
	if r == nil {
		return key, true
	}
	included := len(r.include) == 0 || slices.ContainsFunc(r.include, func(s selector) bool { return s.selectsKey(key) })
	excluded := slices.ContainsFunc(r.exclude, func(s selector) bool {
		return s.selectsKey(key) && len(s.labels)+len(s.hosts) == 0
	})
	if key.Namespace != "" {
		key.Namespace = r.namespace(key.Namespace)
	}
	return key, included && !excluded
}

// TakesKind reports whether objects of a kind may be taken.
func (r *Rules) TakesKind(kind resource.Kind) bool {
	if r == nil {
		return true
	}
	selectsKind := func(s selector) bool { return len(s.kinds) == 0 || slices.Contains(s.kinds, kind) }
	excluded := slices.ContainsFunc(r.exclude, func(s selector) bool {
		return selectsKind(s) && len(s.namespaces)+len(s.names)+len(s.hosts)+len(s.labels) == 0
	})
	return !excluded && (len(r.include) == 0 || slices.ContainsFunc(r.include, selectsKind))
}

func selects(selectors []selector, object *resource.Resource, spec func() proto.Message) bool {
	return slices.ContainsFunc(selectors, func(selector selector) bool {
		if !selector.selectsKey(object.Key()) {
			return false
		}
		for k, want := range selector.labels {
			if value, exists := object.Labels()[k]; !exists || want != "*" && value != want {
				return false
			}
		}
		return len(selector.hosts) == 0 || slices.ContainsFunc(hostsOf(spec()), func(h string) bool {
			return anyMatches(selector.hosts, strings.ToLower(h))
		})
	})
}

func (s selector) selectsKey(key resource.Key) bool {
	return (len(s.kinds) == 0 || slices.Contains(s.kinds, key.Kind)) &&
		(len(s.namespaces) == 0 || anyMatches(s.namespaces, key.Namespace)) &&
		(len(s.names) == 0 || anyMatches(s.names, key.Name))
}

// rewriter changes the references of a spec.
type rewriter struct {
	rules   *Rules
	changed bool
	applied []string
}

// message rewrites message and all messages in it.
func (r *rewriter) message(message protoreflect.Message) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		target, refers := references[field.FullName()]
		switch {
		case refers && field.IsList():
			for i := range value.List().Len() {
				value.List().Set(i, protoreflect.ValueOfString(r.text(target, value.List().Get(i).String())))
			}
		case refers && target == toMatchedHost:
			match, _ := value.Message().Interface().(*networking.StringMatch)
			if exact, ok := match.GetMatchType().(*networking.StringMatch_Exact); ok {
				host, _, _ := strings.Cut(exact.Exact, ":")
				exact.Exact = r.host(host) + exact.Exact[len(host):]
			}
		case refers:
			message.Set(field, protoreflect.ValueOfString(r.text(target, value.String())))
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				r.message(value.List().Get(i).Message())
			}
		default:
			r.message(value.Message())
		}
		return true
	})
}

func (r *rewriter) text(target reference, text string) string {
	switch target {
	case toHost:
		return r.host(text)
	case toNamespace:
		return r.namespace(text)
	}
	namespace, rest, ok := strings.Cut(text, "/")
	switch {
	case !ok && target == toNamespacedHost:
		return r.host(text)
	case !ok:
		return text
	case target == toNamespacedHost:
		rest = r.host(rest)
	}
	return r.namespace(namespace) + "/" + rest
}

// host rewrites a host. "*" stands for every host.
func (r *rewriter) host(name string) string {
	if name == "*" {
		return name
	}
	for _, h := range r.rules.hosts {
		if renamed, ok := h.rename(name); ok {
			if renamed != name {
				r.changed, r.applied = true, add(r.applied, h.rule)
			}
			return renamed
		}
	}
	return name
}

// namespace rewrites the name of a namespace. ".", "*" and "~" stand for this one, all and none.
func (r *rewriter) namespace(name string) string {
	if name == "" || name == "." || name == "*" || name == "~" {
		return name
	}
	renamed := r.rules.namespace(name)
	if renamed != name {
		r.changed, r.applied = true, add(r.applied, "namespaces: "+name+" → "+renamed)
	}
	return renamed
}
