package resource

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tributary/internal/words"
)

// Foreign says what to make of an object of another API than Istio's, such as the Service and the Deployment that stand in
// a file beside their ServiceEntry.
type Foreign int

// What to make of foreign objects.
const (
	ForeignIgnore Foreign = iota // pass over it, and say that it is there: Document.Foreign
	ForeignWarn                  // the same, with a warning
	ForeignError                 // it is an error
)

// gatewayAPI is the group of Kubernetes' Gateway API, whose Gateway is not Istio's.
const gatewayAPI = "gateway.networking.k8s.io"

// groups are the API groups of the schemas.
var groups = func() (all []string) {
	for _, s := range schemas {
		if !slices.Contains(all, s.Group) {
			all = append(all, s.Group)
		}
	}
	return all
}()

// alsoOfOthers are kinds of Istio whose names other APIs use as well.
var alsoOfOthers = []Kind{Gateway, Sidecar, AuthorizationPolicy, Telemetry, ProxyConfig, WasmPlugin}

// isForeign reports whether apiVersion and kind are of another API, rather than Istio's and mistyped. A group that is
// nearly one of Istio's is mistyped, and so is none at all before one of its kinds, and any before one that only Istio has.
func isForeign(apiVersion, kind string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped && !slices.Contains(groups, apiVersion) {
		group = ""
	}
	_, known := schemaByKind[Kind(kind)]
	switch {
	case slices.Contains(groups, group), words.Nearest(group, groups) != "":
		return false
	case known && (!strings.Contains(group, ".") || !slices.Contains(alsoOfOthers, Kind(kind))):
		return false
	}
	return true
}

// passOver reads of a foreign object no more than what it is called.
func (d *decoder) passOver(at *yaml.Node, apiVersion, kind string, metadata *yaml.Node, head *envelope) {
	head.foreign = true
	head.meta.Key = d.nameOf(metadata)
	head.meta.Key.Kind = Kind(kind)
	const not = "%s of %s is not of Istio's API, and is not served"
	format, args := not, []any{kind, apiVersion}
	if group, _, _ := strings.Cut(apiVersion, "/"); group == gatewayAPI && Kind(kind) == Gateway {
		format = not + ": Istio's own Gateway is of %s"
		args = append(args, schemaByKind[Gateway].APIVersion())
	}
	switch d.opts.ForeignKinds {
	case ForeignIgnore:
	case ForeignWarn:
		d.warn(at, format, args...)
	case ForeignError:
		d.fail(at, format, args...)
	}
}

// nameOf returns the name and namespace in the metadata of a foreign object, as far as they can be told.
func (d *decoder) nameOf(metadata *yaml.Node) (key Key) {
	if metadata == nil {
		return key
	}
	key.Namespace = d.opts.DefaultNamespace
	content := deref(metadata).Content
	for i := 0; i+1 < len(content); i += 2 {
		value := deref(content[i+1])
		if deref(metadata).Kind != yaml.MappingNode || value.Kind != yaml.ScalarNode {
			continue
		}
		switch content[i].Value {
		case "name":
			if checkName(value.Value) == nil {
				key.Name = strings.Clone(value.Value)
			}
		case "namespace":
			if CheckNamespace(value.Value) == nil {
				key.Namespace = strings.Clone(value.Value)
			}
		}
	}
	return key
}
