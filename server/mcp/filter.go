package mcp

import (
	"iter"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/internal/names"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/access"
)

// The keys of node metadata that narrow the content for a client.
const (
	metadataRevision   = "ISTIO_REVISION" // a string, sent by istiod where it has a revision
	metadataNamespaces = "NAMESPACES"     // of tributary: a list of namespaces, or a string with commas between them
)

// filter selects the resources for a client. Revision and namespaces, which the client chooses, always admit
// cluster-scoped resources.
type filter struct {
	revision   string   // excludes resources with another revision label; empty for none
	namespaces []string // exclude resources of other namespaces; sorted; empty for none
	rights     *access.Rights
}

// filterOf reads the filter of a client from its node. It refuses invalid revisions and namespaces.
func filterOf(node *corev3.Node, rights *access.Rights) (filter, error) {
	fields := node.GetMetadata().GetFields()
	result := filter{revision: fields[metadataRevision].GetStringValue(), rights: rights.Objects()}
	if err := resource.CheckLabelValue(result.revision); err != nil {
		return result, status.Errorf(codes.InvalidArgument, "node metadata %s: %v", metadataRevision, err)
	}
	var namespaces []string
	switch kind := fields[metadataNamespaces].GetKind().(type) {
	case *structpb.Value_StringValue:
		namespaces = strings.Split(kind.StringValue, ",")
	case *structpb.Value_ListValue:
		for _, element := range kind.ListValue.GetValues() {
			namespaces = append(namespaces, element.GetStringValue())
		}
	}
	for _, namespace := range namespaces {
		if namespace = strings.TrimSpace(namespace); namespace == "" {
			continue
		}
		if err := resource.CheckNamespace(namespace); err != nil {
			return result, status.Errorf(codes.InvalidArgument, "node metadata %s: %v", metadataNamespaces, err)
		}
		result.namespaces = append(result.namespaces, namespace)
	}
	slices.Sort(result.namespaces)
	result.namespaces = slices.Compact(result.namespaces)
	return result, nil
}

// Visible reports whether a client with this node and unlimited rights gets a resource.
func Visible(node *corev3.Node, r *resource.Resource) bool {
	f, err := filterOf(node, nil)
	return err == nil && f.matches(r)
}

// key differs for different filters.
func (f filter) key() string { return names.Join(f.rights.Key(), f.revision) + f.namespaceKey() }

// namespaceKey has the namespaces. A client may name many.
func (f filter) namespaceKey() string { return names.Join(f.namespaces...) }

// visible yields the matching resources of a kind. With namespaces, it reads only these.
func (f filter) visible(snap memstore.Snapshot, kind resource.Kind) iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		for object := range snap.List(kind, "") {
			if len(f.namespaces) > 0 && object.Key().Namespace != "" { // resources without a namespace come first
				break
			}
			if f.matches(object) && !yield(object) {
				return
			}
		}
		for _, namespace := range f.namespaces {
			for object := range snap.List(kind, namespace) {
				if f.matches(object) && !yield(object) {
					return
				}
			}
		}
	}
}

func (f filter) matches(object *resource.Resource) bool {
	if revision := object.Labels()[resource.RevisionLabel]; f.revision != "" && revision != "" && revision != f.revision {
		return false
	}
	if !f.rights.AllowsObject(object) {
		return false
	}
	namespace := object.Key().Namespace
	_, selected := slices.BinarySearch(f.namespaces, namespace)
	return selected || len(f.namespaces) == 0 || namespace == ""
}
