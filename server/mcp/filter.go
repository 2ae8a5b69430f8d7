package mcp

import (
	"iter"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

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

// filter says which resources a client sees. Cluster-scoped ones are left out by nothing that it asks for itself.
type filter struct {
	revision   string   // if set, resources labelled with another revision are left out
	namespaces []string // if any, resources of other namespaces are left out; sorted
	allowed    *access.Allowed
}

func filterOf(node *corev3.Node, allowed *access.Allowed) filter {
	fields := node.GetMetadata().GetFields()
	f := filter{revision: fields[metadataRevision].GetStringValue(), allowed: allowed.Objects()}
	switch v := fields[metadataNamespaces].GetKind().(type) {
	case *structpb.Value_StringValue:
		f.add(strings.Split(v.StringValue, ",")...)
	case *structpb.Value_ListValue:
		for _, e := range v.ListValue.GetValues() {
			f.add(e.GetStringValue())
		}
	}
	slices.Sort(f.namespaces)
	f.namespaces = slices.Compact(f.namespaces)
	return f
}

func (f *filter) add(namespaces ...string) {
	for _, ns := range namespaces {
		if ns = strings.TrimSpace(ns); ns != "" {
			f.namespaces = append(f.namespaces, ns)
		}
	}
}

// Visible says whether a client that introduces itself with node, and is allowed all, is sent r when it asks for its kind.
func Visible(node *corev3.Node, r *resource.Resource) bool { return filterOf(node, nil).matches(r) }

// key identifies the filter.
func (f filter) key() string { return f.own() + f.allowed.Key() }

// own is the part of the key that a client makes up. Neither revisions nor namespaces contain blanks or slashes.
func (f filter) own() string { return f.revision + "/" + strings.Join(f.namespaces, " ") + "/" }

// visible yields the resources of a kind that the filter leaves. Of namespaces that it does not name nothing is looked at.
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
	if !f.allowed.Object(r) {
		return false
	}
	ns := r.Key().Namespace
	if len(f.namespaces) == 0 || ns == "" {
		return true
	}
	_, ok := slices.BinarySearch(f.namespaces, ns)
	return ok
}
