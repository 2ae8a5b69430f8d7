package derive

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"
)

// ruleConverter converts one rule of a route.
type ruleConverter struct {
	*derivation
	route  *object
	field  string // of the rule
	inMesh bool   // for sidecars, where no ReferenceGrant is needed
}

// refuse reports what makes the whole route worthless, as istiod has it.
func (c *ruleConverter) refuse(field, format string, args ...any) {
	c.report(c.route, c.field+field, "%s: nothing is made of this route", fmt.Sprintf(format, args...))
}

// httpRule converts a rule but for its matches. It returns false after having reported what makes the route worthless.
func (c *ruleConverter) httpRule(r *rule, position int) (*networking.HTTPRoute, bool) {
	out := &networking.HTTPRoute{Name: r.Name}
	if r.Name == "" {
		out.Name = c.route.Namespace + "." + c.route.Name + "." + strconv.Itoa(position)
	}
	for i := range r.Filters {
		if !c.filter(&r.Filters[i], i, out) {
			return nil, false
		}
	}
	if !c.retries(r, out) || !c.timeouts(r, out) {
		return nil, false
	}
	if weights(r.BackendRefs) == 0 {
		if out.Redirect == nil {
			out.DirectResponse = &networking.HTTPDirectResponse{Status: 500}
		}
		return out, true
	}
	for _, b := range positive(r.BackendRefs) {
		field := indexed(".backendRefs[%d]", b.index)
		destination, ok := c.backend(b.backendRef, field)
		if !ok {
			return nil, false
		}
		to := &networking.HTTPRouteDestination{Destination: destination, Weight: b.share}
		for i := range b.Filters {
			f := &b.Filters[i]
			field := indexed("%s.filters[%d]", field, i)
			if f.Type != "RequestHeaderModifier" && f.Type != "ResponseHeaderModifier" {
				c.refuse(field, "type %q is not supported at a backend", f.Type)
				return nil, false
			}
			to.Headers = headers(f, to.Headers)
		}
		out.Route = append(out.Route, to)
	}
	return out, true
}

func (c *ruleConverter) retries(r *rule, out *networking.HTTPRoute) bool {
	if r.Retry == nil {
		return true
	}
	on := []string{"connect-failure", "refused-stream", "unavailable", "cancelled"}
	for _, code := range r.Retry.Codes {
		on = append(on, strconv.Itoa(code))
	}
	out.Retries = &networking.HTTPRetry{Attempts: 2, RetryOn: strings.Join(on, ",")}
	if r.Retry.Attempts != nil {
		out.Retries.Attempts = *r.Retry.Attempts
	}
	if out.Retries.GetAttempts() == 0 {
		out.Retries.RetryOn = "" // with no attempts, it would be refused
	}
	if r.Retry.Backoff == "" {
		return true
	}
	backoff, ok := c.duration(".retry.backoff", r.Retry.Backoff)
	out.Retries.Backoff = durationpb.New(backoff)
	return ok
}

func (c *ruleConverter) timeouts(r *rule, out *networking.HTTPRoute) bool {
	if r.Timeouts == nil {
		return true
	}
	request, ok := c.duration(".timeouts.request", r.Timeouts.Request)
	backend, backendOK := c.duration(".timeouts.backendRequest", r.Timeouts.BackendRequest)
	if request != 0 {
		out.Timeout = durationpb.New(request)
	}
	switch {
	case backend == 0:
	case out.GetRetries() != nil:
		out.Retries.PerTryTimeout = durationpb.New(backend)
	default:
		out.Timeout = durationpb.New(backend)
	}
	return ok && backendOK
}

// duration reads a duration, which may be left out.
func (c *ruleConverter) duration(field, text string) (time.Duration, bool) {
	if text == "" {
		return 0, true
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		c.refuse(field, "%q is no duration such as 10s", text)
	}
	return d, err == nil
}

// streamRules converts the rules of a TLSRoute or TCPRoute, or none if one of them is wrong.
func (d *derivation) streamRules(o *object, inMesh bool) [][]*networking.RouteDestination {
	var routes [][]*networking.RouteDestination
	rules := o.spec.(*routeSpec).Rules
	for i := range rules {
		c := ruleConverter{d, o, indexed("spec.rules[%d]", i), inMesh}
		if weights(rules[i].BackendRefs) == 0 {
			routes = append(routes, []*networking.RouteDestination{{Destination: nowhere("zero-weight")}})
			continue
		}
		var destinations []*networking.RouteDestination
		for _, b := range positive(rules[i].BackendRefs) {
			destination, ok := c.backend(b.backendRef, indexed(".backendRefs[%d]", b.index))
			if !ok {
				return nil
			}
			destinations = append(destinations, &networking.RouteDestination{Destination: destination, Weight: b.share})
		}
		routes = append(routes, destinations)
	}
	return routes
}
