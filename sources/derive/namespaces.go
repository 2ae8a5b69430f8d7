package derive

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// namespaceName is the label that each namespace has, and whose value is its name.
const namespaceName = "kubernetes.io/metadata.name"

// selectNamespaces returns the namespaces that a selector selects, in order; none if it is nil or wrong. One whose Namespace is not known
// is known if a route or a ListenerSet is in it, and has its name for a label. Since it may have others, a selector that asks for one,
// or for its absence, does not select it.
func (d *derivation) selectNamespaces(s *metav1.LabelSelector) (selected []string) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil
	}
	requirements, _ := selector.Requirements()
	byName := !slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() != namespaceName })
	for namespace, own := range d.namespaces() {
		set := labels.Set{}
		maps.Copy(set, own)
		set[namespaceName] = namespace
		if selector.Matches(set) && (byName || d.find("Namespace", "", namespace) != nil) {
			selected = append(selected, namespace)
		}
	}
	slices.Sort(selected)
	return selected
}

// namespaces returns the labels of the namespaces that are known.
func (d *derivation) namespaces() map[string]map[string]string {
	if d.known == nil {
		d.known = make(map[string]map[string]string)
		for _, kind := range append(slices.Clone(kindsOfRoutes), "ListenerSet", "XListenerSet") {
			for n := range d.objects[kind] {
				d.known[n.namespace] = nil
			}
		}
		for n, o := range d.objects["Namespace"] {
			d.known[n.name] = o.Labels
		}
	}
	return d.known
}
