package client

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"
	mcp "istio.io/api/mcp/v1alpha1"

	"tributary/adsc"
	"tributary/resource"
)

// decode reads a response. What cannot be decoded is told, not dropped.
func decode(r *adsc.Response) *Answer {
	answer := &Answer{typeURL: r.TypeURL}
	for _, a := range r.Bodies() {
		res, err := decodeOne(r.TypeURL, a)
		if err != nil {
			answer.Rejects = append(answer.Rejects, fmt.Errorf("%s sent something invalid: %w", r.Server, err))
			continue
		}
		answer.Resources = append(answer.Resources, res)
	}
	slices.SortFunc(answer.Resources, func(a, b *resource.Resource) int { return a.Key().Compare(b.Key()) })
	return answer
}

// decodeOne is resource.DecodeMCP, but that it takes names without a namespace, "/name", which istiod gives to objects
// that it read from files. To istiod itself they are in the namespace default.
func decodeOne(typeURL string, a *anypb.Any) (*resource.Resource, error) {
	if res, err := resource.DecodeMCP(typeURL, a); err == nil {
		return res, nil
	}
	var m mcp.Resource
	if a.UnmarshalTo(&m) == nil && strings.HasPrefix(m.GetMetadata().GetName(), "/") {
		m.Metadata.Name = "default" + m.GetMetadata().GetName()
		if named, err := anypb.New(&m); err == nil {
			a = named
		}
	}
	return resource.DecodeMCP(typeURL, a)
}
