package resource

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/internal/words"
)

// meshConfigName is the name of a MeshConfig that gives none: there is only one in a mesh.
const meshConfigName = "istio"

// envelope is a document without its spec.
type envelope struct {
	schema  *Schema // nil if unknown
	foreign bool    // of another API
	object  *Other  // such an object, if it is kept
	meta    Meta
	// namespace is the object's, even if its name cannot be used; empty if the object may be in any namespace.
	namespace string
	spec      *yaml.Node // nil if there is none
	items     *yaml.Node // of a list; the rest is then empty
}

// The fields of an envelope, and those of metadata that are read, or accepted because kubectl and controllers write
// them and they do not affect the content.
var (
	envelopeFields = []string{"apiVersion", "kind", "metadata", "spec"}
	listFields     = []string{"apiVersion", "kind", "metadata", "items"}
	metadataFields = []string{"name", "namespace", "labels", "annotations", "creationTimestamp"}
	metadataNoise  = []string{
		"clusterName", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName", "generation",
		"managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid",
	}
)

// envelope reads all of the document but the spec.
func (d *decoder) envelope(root *yaml.Node) *envelope {
	head := &envelope{}
	if root.Kind != yaml.MappingNode {
		d.fail(root, "want an object with apiVersion, kind, metadata and spec, got %s", d.describe(root))
		return head
	}
	var apiVersion, kind string
	var apiVersionNode, kindNode, metadata *yaml.Node
	entries := d.entries(root)
	for i := 0; i < len(entries); i += 2 {
		value := entries[i+1]
		switch entries[i].Value {
		case "apiVersion":
			apiVersionNode = value
			apiVersion = d.text("apiVersion", value)
		case "kind":
			kindNode = value
			kind = d.text("kind", value)
		case "metadata":
			metadata = value
		case "spec":
			head.spec = value
		case "items":
			head.items = value
		}
	}
	d.isObject = apiVersion != "" && kind != ""
	if d.isObject && !(d.isASCII("apiVersion", apiVersionNode, apiVersion) && d.isASCII("kind", kindNode, kind)) {
		head.items = nil
		return head
	}
	if kind == "List" && head.items == nil {
		d.fail(root, "items is missing")
		return head
	}
	if strings.HasSuffix(kind, "List") && head.items != nil {
		items := deref(head.items)
		if head.items.Kind == yaml.AliasNode || items.Kind != yaml.SequenceNode {
			d.fail(head.items, "items: want a list, got %s", d.describe(items))
			items = nil
		}
		head.items = items
		d.onlyFields(entries, listFields)
		return head
	}
	head.items = nil
	switch {
	case kind == "" && apiVersion == "" && len(d.errs) == 0:
		d.fail(root, "apiVersion and kind are missing; is this an object of Istio's API?")
	case kind == "" && len(d.errs) == 0:
		d.fail(root, "kind is missing")
	case apiVersion == "" && len(d.errs) == 0:
		d.fail(root, "apiVersion is missing")
	case len(d.errs) == 0:
		if isForeign(apiVersion, kind) {
			head.foreign = true
			head.meta.Key = d.nameOf(metadata)
			head.meta.Key.Kind = Kind(kind)
			if d.keeps(apiVersion, kind) {
				d.keep(root, apiVersion, head)
			} else {
				d.passOver(apiVersionNode, apiVersion, kind)
			}
			return head
		}
		head.schema = d.schema(apiVersionNode, apiVersion, kindNode, kind)
	}
	if _, isKind := schemaByKind[Kind(kind)]; isKind || d.isObject {
		head.meta.Key.Kind = Kind(kind)
	}
	if kind == "" || apiVersion == "" {
		return head
	}
	d.onlyFields(entries, envelopeFields, "status")
	d.metadata(root, metadata, head)
	return head
}

// isASCII reports a text that is not printable ASCII as a problem. Terminals and pages would obey some other
// characters, and people would confuse some.
func (d *decoder) isASCII(name string, n *yaml.Node, text string) bool {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		d.fail(n, "%s: want printable ASCII, got %+q", name, text)
		return false
	}
	return true
}

// onlyFields reports the entries with keys that are neither allowed nor silent.
func (d *decoder) onlyFields(entries []*yaml.Node, allowed []string, silent ...string) {
	for i := 0; i < len(entries); i += 2 {
		if name := entries[i].Value; !slices.Contains(silent, name) && !slices.Contains(allowed, name) {
			d.unknown(entries[i], allowed)
		}
	}
}

// schema returns the schema of a document. It returns nil after it has reported the reason.
func (d *decoder) schema(apiVersionNode *yaml.Node, apiVersion string, kindNode *yaml.Node, kind string) *Schema {
	if s, ok := SchemaByAPIVersion(apiVersion, kind); ok {
		return s
	}
	schema, ok := schemaByKind[Kind(kind)]
	if !ok {
		kinds := make([]string, len(schemas))
		for i, s := range schemas {
			kinds[i] = string(s.Kind)
		}
		if guess := words.Nearest(kind, kinds); guess != "" {
			d.fail(kindNode, "unknown kind %q of %s; did you mean %q?", kind, apiVersion, guess)
		} else {
			d.fail(kindNode, "unknown kind %q of %s: not one of Istio's that are served over MCP", kind, apiVersion)
		}
		return nil
	}
	if schema.Bare && slices.Contains(schema.Versions, apiVersion) {
		return schema // Istio's own registration has no group for it.
	}
	group, _, _ := strings.Cut(apiVersion, "/")
	if group != schema.Group {
		d.fail(apiVersionNode, "unknown kind %q of %s: Istio's is of %s", kind, apiVersion, schema.APIVersion())
	} else {
		d.fail(apiVersionNode, "unknown version %q of %s: %s has %s", apiVersion, kind, schema.Group,
			strings.Join(schema.Versions, ", "))
	}
	return nil
}

// metadata reads `metadata:` into head, and checks that the object is named.
func (d *decoder) metadata(root, metadata *yaml.Node, head *envelope) {
	key := Key{Kind: head.meta.Key.Kind}
	bare := false
	if head.schema != nil {
		key.Kind, bare = head.schema.Kind, head.schema.Bare
	}
	place, namePlace, namespacePlace := root, root, root
	if metadata != nil {
		place, namePlace, namespacePlace = metadata, metadata, metadata
		d.mapping("metadata", metadata, func(entries []*yaml.Node) {
			for i := 0; i < len(entries); i += 2 {
				value := entries[i+1]
				switch name := entries[i].Value; name {
				case "name":
					key.Name, namePlace = d.text(name, value), value
				case "namespace":
					key.Namespace, namespacePlace = d.text(name, value), value
				case "labels":
					head.meta.Labels = d.strings(name, value)
				case "annotations":
					head.meta.Annotations = d.strings(name, value)
					delete(head.meta.Annotations, lastApplied)
				case "creationTimestamp":
					d.read(name, value, func(n *yaml.Node) {
						if created, _ := d.time(value, n); created.After(lastRank) { // else it would be a rank
							head.meta.Created = created
						}
					})
				default:
					if !slices.Contains(metadataNoise, name) {
						d.unknown(entries[i], metadataFields)
					}
				}
			}
		})
	}
	if len(head.meta.Annotations) == 0 {
		head.meta.Annotations = nil
	}
	if len(head.meta.Labels) == 0 {
		head.meta.Labels = nil
	}
	d.name(&key, bare, place, namePlace, namespacePlace)
	if metadata != nil && root.Content[len(root.Content)-1] != metadata { // else the text may be cut off within it
		head.namespace = key.Namespace
	}
	if key.Name == "" {
		key.Namespace = ""
	}
	head.meta.Key = key
}

// name checks and completes the key. One that cannot be used is left without its name.
func (d *decoder) name(key *Key, bare bool, place, namePlace, namespacePlace *yaml.Node) {
	named := true
	switch {
	case key.Name != "":
		if err := checkName(key.Name); err != nil {
			d.fail(namePlace, "metadata.name: %w", err)
			named = false
		}
	case bare:
		key.Name = meshConfigName
	case namePlace == place || isNull(deref(namePlace)) || deref(namePlace).Tag == "!!str":
		d.fail(place, "metadata.name is missing")
		named = false
	}
	switch {
	case bare && key.Namespace != "":
		d.warn(namespacePlace, "metadata.namespace: %s is cluster-scoped, the namespace is ignored", key.Kind)
		key.Namespace = ""
	case bare:
	case key.Namespace == "":
		key.Namespace = d.opts.DefaultNamespace
	default:
		if err := CheckNamespace(key.Namespace); err != nil {
			d.fail(namespacePlace, "metadata.namespace: %w", err)
			named, key.Namespace = false, ""
		}
	}
	if !named {
		key.Name = ""
	}
}

// read calls use with the value of the field name, unless it is null or cannot be read.
func (d *decoder) read(name string, value *yaml.Node, use func(n *yaml.Node)) {
	d.inField(name, func() {
		node, ok := d.visit(value)
		if !ok {
			return
		}
		defer d.leave(value)
		if !isNull(node) {
			use(node)
		}
	})
}

// mapping calls f with the entries of the field name, which must be a mapping; null has none.
func (d *decoder) mapping(name string, value *yaml.Node, f func(entries []*yaml.Node)) {
	d.read(name, value, func(node *yaml.Node) {
		if node.Kind == yaml.MappingNode {
			f(d.entries(node))
		} else {
			d.fail(value, "want a mapping, got %s", d.describe(node))
		}
	})
}

// text reads the string field name; null is empty. The string is a copy, since the envelope stays in memory, and would
// keep the text of the whole document.
func (d *decoder) text(name string, value *yaml.Node) (s string) {
	d.read(name, value, func(n *yaml.Node) { s, _ = d.str(value, n) })
	return strings.Clone(s)
}

// strings reads the field name, a mapping of strings to strings.
func (d *decoder) strings(name string, value *yaml.Node) (values map[string]string) {
	d.mapping(name, value, func(entries []*yaml.Node) {
		values = make(map[string]string, len(entries)/2)
		for i := 0; i < len(entries); i += 2 {
			values[strings.Clone(entries[i].Value)] = d.text(entries[i].Value, entries[i+1])
		}
	})
	return values
}

// time returns the time in a node. resolved is the target of the node if it is an alias, else the node.
func (d *decoder) time(node, resolved *yaml.Node) (moment time.Time, ok bool) {
	moment, err := time.Parse(time.RFC3339Nano, resolved.Value)
	if resolved.Kind != yaml.ScalarNode || err != nil {
		d.fail(node, `want a time such as "2006-01-02T15:04:05Z", got %s`, d.describe(resolved))
		return time.Time{}, false
	}
	return moment.UTC(), true
}

// Foreign is the treatment of objects of other APIs than Istio's, such as the Service and the Deployment beside their
// ServiceEntry in a file.
type Foreign int

// The treatments of foreign objects.
const (
	ForeignIgnore Foreign = iota // pass over it, and report its existence: Document.Foreign
	ForeignWarn                  // the same, with a warning
	ForeignError                 // it is an error
)

// gatewayAPI is the group of Kubernetes' Gateway API, with another Gateway than Istio's.
const gatewayAPI = "gateway.networking.k8s.io"

// groups are the API groups of the schemas.
var groups = func() (names []string) {
	for _, s := range schemas {
		if !slices.Contains(names, s.Group) {
			names = append(names, s.Group)
		}
	}
	return names
}()

// alsoOfOthers are the kinds of Istio that other APIs have, too.
var alsoOfOthers = []Kind{Gateway, Sidecar, AuthorizationPolicy, Telemetry, ProxyConfig, WasmPlugin}

// isForeign reports whether apiVersion and kind are of another API, rather than Istio's and mistyped. Mistyped are: a
// group that is similar to one of Istio's, no group, or one that contains Istio's name, before one of its kinds, and
// any group before a kind that only Istio has.
func isForeign(apiVersion, kind string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped && !slices.Contains(groups, apiVersion) {
		group = ""
	}
	_, isKind := schemaByKind[Kind(kind)]
	if schema, mistyped := SchemaByName(kind); !isKind && mistyped && Restricts(schema.Kind) {
		kind, isKind = string(schema.Kind), true
	}
	switch {
	case slices.Contains(groups, group), words.Nearest(group, groups) != "":
		return false
	case !isKind:
		return true
	case !strings.Contains(group, "."), strings.Contains(strings.ToLower(group), "istio"),
		!slices.Contains(alsoOfOthers, Kind(kind)):
		return false
	}
	return true
}

// passOver reports a foreign object, as the options say.
func (d *decoder) passOver(node *yaml.Node, apiVersion, kind string) {
	const notServed = "%s of %s is not of Istio's API, and is not served"
	format, args := notServed, []any{kind, apiVersion}
	if group, _, _ := strings.Cut(apiVersion, "/"); group == gatewayAPI && Kind(kind) == Gateway {
		format = notServed + ": Istio's own Gateway is of %s"
		args = append(args, schemaByKind[Gateway].APIVersion())
	}
	switch d.opts.ForeignKinds {
	case ForeignIgnore:
	case ForeignWarn:
		d.warn(node, format, args...)
	case ForeignError:
		d.fail(node, format, args...)
	}
}

// keeps reports whether a kind of another API is one of those that the options name.
func (d *decoder) keeps(apiVersion, kind string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group = ""
	}
	return d.opts.Keep != "" && slices.Contains(strings.Split(d.opts.Keep, " "), kind+"."+group)
}

// keep reads all of a foreign object.
func (d *decoder) keep(root *yaml.Node, apiVersion string, head *envelope) {
	object := &structpb.Struct{}
	d.wellKnown(object.ProtoReflect(), root, root)
	text, err := json.Marshal(object.AsMap())
	if err != nil {
		d.fail(root, "encode: %w", err)
		return
	}
	head.object = &Other{APIVersion: apiVersion, JSON: text}
}

// nameOf returns the name and namespace in the metadata of a foreign object, if they can be read.
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
