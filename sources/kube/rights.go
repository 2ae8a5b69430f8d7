package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	rbac          = "rbac.authorization.k8s.io"
	accessReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	accessReview  = `{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": %s}}`
	userReviews   = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	userReview    = `{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`
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
	versions, err := lookAt(ctx, client, r.kinds)
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
			roles += roleOf(namespace, needed[namespace], client.subject(ctx))
		}
	}
	return deniedText(denied), roles, nil
}

// allowed asks whether a stream may be read.
func (a *api) allowed(ctx context.Context, of *stream) (bool, error) {
	for _, verb := range verbs {
		var answer struct{ Status struct{ Allowed bool } }
		asked := fmt.Sprintf(`{"group": %q, "resource": %q, "verb": %q, "namespace": %q}`, of.group, of.plural, verb, of.namespace)
		err := a.exchange(ctx, http.MethodPost, accessReviews, nil, fmt.Sprintf(accessReview, asked), &answer)
		if err != nil || !answer.Status.Allowed {
			return false, err
		}
	}
	return true, nil
}

// subject returns who the source is to the cluster, as a RoleBinding names it.
func (a *api) subject(ctx context.Context) map[string]string {
	var answer struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	_ = a.exchange(ctx, http.MethodPost, userReviews, nil, userReview, &answer) // an old cluster does not say
	name := cmp.Or(answer.Status.UserInfo.Username, "NAME")                     // for people to fill in
	if account, ok := strings.CutPrefix(name, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return map[string]string{"kind": "ServiceAccount", "namespace": namespace, "name": name}
	}
	return map[string]string{"apiGroup": rbac, "kind": "User", "name": name}
}

// roleOf returns the manifests of the role that reads resources, by group, in a namespace, and of its binding.
func roleOf(namespace string, resources map[string][]string, subject map[string]string) (manifests string) {
	kind, metadata := "ClusterRole", map[string]string{"name": "tributary-read"}
	if namespace != "" {
		kind, metadata["namespace"] = "Role", namespace
	}
	var rules []map[string][]string
	for _, group := range slices.Sorted(maps.Keys(resources)) {
		rules = append(rules, map[string][]string{"apiGroups": {group}, "resources": resources[group], "verbs": verbs})
	}
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
