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

// The keys of node metadata that narrow what a client is sent.
const (
	metadataRevision   = "ISTIO_REVISION" // a string, sent by istiod where it has a revision
	metadataNamespaces = "NAMESPACES"     // ours: a list of namespaces, or one string with commas between them
)

const revisionLabel = "istio.io/rev"

// filter says which resources a client sees. The client's own part (revision, namespaces) never leaves out cluster-scoped ones.
type filter struct {
	revision   string   // if set, resources labelled with another revision are left out
	namespaces []string // if any, resources of other namespaces are left out; sorted
	rights     *access.Rights
}

// filterOf reads the filter of a client from its node. A revision or namespace that no object can have is refused.
func filterOf(node *corev3.Node, rights *access.Rights) (filter, error) {
	fields := node.GetMetadata().GetFields()
	f := filter{revision: fields[metadataRevision].GetStringValue(), rights: rights.Objects()}
	if err := resource.CheckLabelValue(f.revision); err != nil {
		return f, status.Errorf(codes.InvalidArgument, "node metadata %s: %v", metadataRevision, err)
	}
	var namespaces []string
	switch v := fields[metadataNamespaces].GetKind().(type) {
	case *structpb.Value_StringValue:
		namespaces = strings.Split(v.StringValue, ",")
	case *structpb.Value_ListValue:
		for _, e := range v.ListValue.GetValues() {
			namespaces = append(namespaces, e.GetStringValue())
		}
	}
	for _, ns := range namespaces {
		if ns = strings.TrimSpace(ns); ns == "" {
			continue
		}
		if err := resource.CheckNamespace(ns); err != nil {
			return f, status.Errorf(codes.InvalidArgument, "node metadata %s: %v", metadataNamespaces, err)
		}
		f.namespaces = append(f.namespaces, ns)
	}
	slices.Sort(f.namespaces)
	f.namespaces = slices.Compact(f.namespaces)
	return f, nil
}

// Visible reports whether a client with node, whose access is not limited, sees r.
func Visible(node *corev3.Node, r *resource.Resource) bool {
	f, err := filterOf(node, nil)
	return err == nil && f.matches(r)
}

// key identifies the filter: equal filters have equal keys, and others have others.
func (f filter) key() string { return names.Join(f.rights.Key(), f.revision) + f.own() }

// own is the namespaces, of which a client may name many.
func (f filter) own() string { return names.Join(f.namespaces...) }

// visible yields the resources of a kind that match. If the filter has namespaces, it looks only at these.
func (f filter) visible(snap memstore.Snapshot, kind resource.Kind) iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		for r := range snap.List(kind, "") {
			if len(f.namespaces) > 0 && r.Key().Namespace != "" { // those without a namespace come first
				break
			}
			if f.matches(r) && !yield(r) {
				return
			}
		}
		for _, ns := range f.namespaces {
			for r := range snap.List(kind, ns) {
				if f.matches(r) && !yield(r) {
					return
				}
			}
		}
	}
}

func (f filter) matches(r *resource.Resource) bool {
	if rev := r.Labels()[revisionLabel]; f.revision != "" && rev != "" && rev != f.revision {
		return false
	}
	if !f.rights.AllowsObject(r) {
		return false
	}
	ns := r.Key().Namespace
	if len(f.namespaces) == 0 || ns == "" {
		return true
	}
	_, ok := slices.BinarySearch(f.namespaces, ns)
	return ok
}
