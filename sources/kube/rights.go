package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

const (
	accessReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	accessReview  = `{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes":
		{"group": %q, "resource": %q, "verb": %q, "namespace": %q}}}`

	// role has the kind of role, its metadata and its rules. People fill in the name.
	role = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: %[1]s
metadata: {name: tributary-read%[2]s}
rules:
%[3]s---
apiVersion: rbac.authorization.k8s.io/v1
kind: %[1]sBinding
metadata: {name: tributary-read%[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[1]s, name: tributary-read}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: NAME}]
`
	rule = "- {apiGroups: [%q], resources: [%s], verbs: [list, watch]}\n"
)

// Rights asks the cluster for the source's permissions to read each kind of the cluster. It returns the missing ones,
// and the manifests of the roles that grant them.
func (s *Source) Rights(ctx context.Context) (lacks, roles string, err error) {
	client, err := s.cluster.connect()
	if err != nil {
		return "", "", err
	}
	defer client.close()
	run := newRun(s, nil)
	versions, err := client.lookAt(ctx, run.kinds)
	if err != nil {
		return "", "", fmt.Errorf("look for the kinds: %w", err)
	}
	var denied []string
	missing, rules := make(map[string]bool), make(map[string]string) // by namespace
	for _, stream := range run.streams {
		if versions[stream.kind] == "" {
			continue
		}
		rules[stream.namespace] += fmt.Sprintf(rule, stream.group, stream.plural)
		for _, verb := range []string{"list", "watch"} {
			var answer struct{ Status struct{ Allowed bool } }
			review := fmt.Sprintf(accessReview, stream.group, stream.plural, verb, stream.namespace)
			if err := client.ask(ctx, accessReviews, nil, review, &answer); err != nil {
				return "", "", fmt.Errorf("ask for the right to %s: %w", stream.where(), err)
			}
			if !answer.Status.Allowed {
				denied, missing[stream.namespace] = append(denied, stream.where()), true
			}
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(missing)) {
		kind, place := "Role", ", namespace: "+namespace
		if namespace == "" {
			kind, place = "ClusterRole", ""
		}
		roles += fmt.Sprintf(role, kind, place, rules[namespace])
	}
	if len(denied) > 0 {
		lacks = missingRights(slices.Compact(denied)) // some lack both verbs
	}
	return lacks, roles, nil
}
