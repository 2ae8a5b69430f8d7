package kube

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"tributary/sources"
)

// confirmMissing confirms the absence of the kinds of policies that the server does not list. A server that starts does
// not list its CRDs for a moment. So a kind without any known object has to be missing for confirmTime before the
// cluster counts as one without it. run.mu is held.
func (r *run) confirmMissing(now time.Time, versions map[*kind]string) {
	for _, stream := range r.streams {
		cache := &stream.cache
		isMissing := stream.kind.policies && versions[stream.kind] == ""
		confirmed := cache.absenceConfirmed || now.Sub(r.missingSince[stream.kind]) >= r.confirmTime()
		cache.absenceConfirmed = isMissing && confirmed
	}
}

// confirmTime is the time that a kind without any known object has to be missing.
func (r *run) confirmTime() time.Duration { return min(r.discoveryInterval/2, 15*time.Second) }

// neverRead reports whether the stream is for policies that were never read. run.mu is held.
func (s *stream) neverRead() bool {
	return s.kind.policies && !s.cache.hasList && s.cache.seen == 0 && !s.cache.absenceConfirmed
}

// neverReadReason returns the reason why the policies of a stream were never read, and the remedy.
func (s *stream) neverReadReason() string {
	text := fmt.Sprintf("%s %s were never read, so Envoys refuse all requests", s.run.shownAddress, s.where())
	missingSince := s.run.missingSince[s.kind]
	switch {
	case refused(s.err).Code == http.StatusForbidden:
		return text + ": " + missingRights([]string{s.where()}) + "; grant it, or set kinds without them"
	case s.err != nil:
		return fmt.Sprintf("%s: %v", text, s.err)
	case !missingSince.IsZero():
		return fmt.Sprintf("%s: /apis does not list the kind. If it is still missing at %s UTC, the cluster counts as one "+
			"without it", text, missingSince.Add(s.run.confirmTime()).UTC().Format(time.TimeOnly))
	}
	return text
}

// reportNeverRead reports the policies that were never read to the sink. run.mu is held.
func (r *run) reportNeverRead() {
	sink, ok := r.sink.(sources.PolicyReader)
	if !ok {
		return
	}
	reasons := make(map[string][]string)
	for _, stream := range r.streams {
		if stream.neverRead() {
			reasons[stream.namespace] = append(reasons[stream.namespace], stream.neverReadReason())
		}
	}
	texts := make(map[string]string)
	for namespace, list := range reasons {
		texts[namespace] = strings.Join(list, "; ")
	}
	sink.UnreadPolicies(texts)
}
