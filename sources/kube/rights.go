package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
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
	var denied []*stream
	needed := make(map[string][]*stream) // by namespace
	for _, of := range r.streams {
		if versions[of.resource()] == "" {
			continue
		}
		namespace := of.scope()
		needed[namespace] = append(needed[namespace], of)
		for _, verb := range verbs {
			switch allowed, err := client.allowed(ctx, of, verb); {
			case err != nil:
				return "", "", fmt.Errorf("ask for the right to %s %s: %w", verb, of.where(), err)
			case !allowed && !slices.Contains(denied, of):
				denied = append(denied, of)
			}
		}
	}
	if len(denied) == 0 {
		return "", "", nil
	}
	maps.DeleteFunc(needed, func(namespace string, _ []*stream) bool {
		return !slices.ContainsFunc(denied, func(of *stream) bool { return of.scope() == namespace })
	})
	subject := client.subject(ctx)
	for _, namespace := range slices.Sorted(maps.Keys(needed)) {
		made, err := roleOf(namespace, needed[namespace], subject)
		if err != nil {
			return "", "", err
		}
		roles += made
	}
	return deniedText(denied), roles, nil
}

// scope is the namespace whose Role gives the right; empty for a ClusterRole.
func (s *stream) scope() string {
	if s.cluster {
		return ""
	}
	return s.namespace
}

// allowed asks whether a stream may be read.
func (a *api) allowed(ctx context.Context, of *stream, verb string) (bool, error) {
	attributes := map[string]string{"group": of.group, "resource": of.plural, "verb": verb, "namespace": of.scope()}
	var answer struct{ Status struct{ Allowed bool } }
	err := a.create(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": attributes},
	}, &answer)
	return answer.Status.Allowed, err
}

// subject returns who the source is to the cluster, as a RoleBinding names it.
func (a *api) subject(ctx context.Context) map[string]string {
	const group = "authentication.k8s.io/v1"
	var answer struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	name := "NAME" // for people to fill in, if the cluster does not say
	if err := a.create(ctx, "/apis/"+group+"/selfsubjectreviews", map[string]any{
		"apiVersion": group, "kind": "SelfSubjectReview",
	}, &answer); err == nil && answer.Status.UserInfo.Username != "" {
		name = answer.Status.UserInfo.Username
	}
	if account, ok := strings.CutPrefix(name, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return map[string]string{"kind": "ServiceAccount", "namespace": namespace, "name": name}
	}
	return map[string]string{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
}

// create sends an object, and reads what the server makes of it.
func (a *api) create(ctx context.Context, path string, object, answer any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return a.exchange(ctx, http.MethodPost, path, bytes.NewReader(text), answer)
}

// roleOf returns the manifests of the role that reads streams of a namespace, and of its binding.
func roleOf(namespace string, all []*stream, subject map[string]string) (manifests string, err error) {
	kind, metadata := "ClusterRole", map[string]string{"name": "tributary-read"}
	if namespace != "" {
		kind, metadata["namespace"] = "Role", namespace
	}
	byGroup := make(map[string][]string)
	for _, of := range all {
		byGroup[of.group] = append(byGroup[of.group], of.plural)
	}
	var rules []map[string][]string
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		rules = append(rules, map[string][]string{"apiGroups": {group}, "resources": byGroup[group], "verbs": verbs})
	}
	const group = "rbac.authorization.k8s.io"
	for _, object := range []map[string]any{
		{"apiVersion": group + "/v1", "kind": kind, "metadata": metadata, "rules": rules},
		{
			"apiVersion": group + "/v1", "kind": kind + "Binding", "metadata": metadata, "subjects": []any{subject},
			"roleRef": map[string]string{"apiGroup": group, "kind": kind, "name": metadata["name"]},
		},
	} {
		text, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		manifests += "---\n" + string(text)
	}
	return manifests, nil
}
