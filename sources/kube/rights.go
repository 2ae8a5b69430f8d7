package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

const (
	rbac          = "rbac.authorization.k8s.io"
	accessReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	accessReview  = `{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": %s}}`
)

// verbs are what the source does with each kind.
var verbs = []string{"list", "watch"}

// Rights asks the cluster whether the source may read each kind that the cluster has. It returns what it may not, and the manifests of the
// roles that it needs where it lacks something; nothing if it may read everything.
func (s *Source) Rights(ctx context.Context) (lacks, roles string, err error) {
	client, err := s.cluster.connect()
	if err != nil {
		return "", "", err
	}
	defer client.close()
	r := newRun(s, nil)
	versions, err := lookAt(ctx, client, r.streams)
	if err != nil {
		return "", "", fmt.Errorf("look for the kinds: %w", err)
	}
	needed := make(map[string]map[string][]string) // resources, by namespace and group
	var denied []*stream
	for _, of := range r.streams {
		if versions[of.resource()] == "" {
			continue
		}
		if needed[of.namespace] == nil {
			needed[of.namespace] = make(map[string][]string)
		}
		needed[of.namespace][of.group] = append(needed[of.namespace][of.group], of.plural)
		allowed, err := client.allowed(ctx, of)
		if err != nil {
			return "", "", fmt.Errorf("ask for the right to %s: %w", of.where(), err)
		}
		if !allowed {
			denied = append(denied, of)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(needed)) {
		if slices.ContainsFunc(denied, func(of *stream) bool { return of.namespace == namespace }) {
			roles += roleOf(namespace, needed[namespace])
		}
	}
	return deniedText(denied), roles, nil
}

// allowed asks whether a stream may be read.
func (a *api) allowed(ctx context.Context, of *stream) (bool, error) {
	for _, verb := range verbs {
		var answer struct{ Status struct{ Allowed bool } }
		asked := fmt.Sprintf(`{"group": %q, "resource": %q, "verb": %q, "namespace": %q}`, of.group, of.plural, verb, of.namespace)
		err := a.ask(ctx, accessReviews, nil, fmt.Sprintf(accessReview, asked), &answer)
		if err != nil || !answer.Status.Allowed {
			return false, err
		}
	}
	return true, nil
}

// roleOf returns the manifests of the role that reads resources, by group, in a namespace, and of its binding.
func roleOf(namespace string, resources map[string][]string) (manifests string) {
	kind, metadata := "ClusterRole", map[string]string{"name": "tributary-read"}
	if namespace != "" {
		kind, metadata["namespace"] = "Role", namespace
	}
	var rules []map[string][]string
	for _, group := range slices.Sorted(maps.Keys(resources)) {
		rules = append(rules, map[string][]string{"apiGroups": {group}, "resources": resources[group], "verbs": verbs})
	}
	subject := map[string]string{"apiGroup": rbac, "kind": "User", "name": "NAME"} // for people to fill in
	for _, object := range []map[string]any{
		{"apiVersion": rbac + "/v1", "kind": kind, "metadata": metadata, "rules": rules},
		{
			"apiVersion": rbac + "/v1", "kind": kind + "Binding", "metadata": metadata, "subjects": []any{subject},
			"roleRef": map[string]string{"apiGroup": rbac, "kind": kind, "name": metadata["name"]},
		},
	} {
		text, _ := yaml.Marshal(object) // texts and lists of texts
		manifests += "---\n" + string(text)
	}
	return manifests
}
