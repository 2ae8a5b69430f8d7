package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

const (
	accessReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	accessReview  = `{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": {"resourceAttributes": {"group": %q, "resource": %q, "verb": %q, "namespace": %q}}}`

	// role needs the kind of role, its metadata and its rules. People fill in NAME.
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
	roleRule = "- {apiGroups: [%q], resources: [%s], verbs: [list, watch]}\n"
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
	versions, err := client.discover(ctx, run.kinds)
	if err != nil {
		return "", "", fmt.Errorf("look for the kinds: %w", err)
	}
	var denied []string
	missing := make(map[string]bool) // by namespace
	rules := make(map[string]string) // by namespace
	for _, stream := range run.streams {
		if versions[stream.kind] == "" {
			continue
		}
		rules[stream.namespace] += fmt.Sprintf(roleRule, stream.kind.group, stream.kind.plural)
		for _, verb := range []string{"list", "watch"} {
			var answer struct{ Status struct{ Allowed bool } }
			review := fmt.Sprintf(accessReview, stream.kind.group, stream.kind.plural, verb, stream.namespace)
			if err := client.ask(ctx, accessReviews, nil, review, &answer); err != nil {
				return "", "", fmt.Errorf("ask for the right to %s: %w", stream.where(), err)
			}
			if !answer.Status.Allowed {
				denied = append(denied, stream.where())
				missing[stream.namespace] = true
			}
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(missing)) {
		if namespace == "" {
			roles += fmt.Sprintf(role, "ClusterRole", "", rules[namespace])
		} else {
			roles += fmt.Sprintf(role, "Role", ", namespace: "+namespace, rules[namespace])
		}
	}
	if len(denied) > 0 {
		lacks = missingRights(slices.Compact(denied)) // a kind that lacks both verbs is in it twice
	}
	return lacks, roles, nil
}
