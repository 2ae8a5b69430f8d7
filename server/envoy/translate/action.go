package translate

import (
	"iter"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	previousprioritiesv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// Actions of routes that do not lead to clusters.

// replacesPrefix begins the path of a redirect of Gateway API that replaces only the prefix of the match.
const replacesPrefix = "%PREFIX()%"

func (w routeContext) redirect(r *networking.HTTPRedirect, match *routev3.RouteMatch) *routev3.Route_Redirect {
	a := &routev3.RedirectAction{
		HostRedirect: r.GetAuthority(), PathRewriteSpecifier: &routev3.RedirectAction_PathRedirect{PathRedirect: r.GetUri()},
	}
	prefix, replaces := r.GetPrefixRewrite(), r.GetPrefixRewrite() != ""
	if derived, ok := strings.CutPrefix(r.GetUri(), replacesPrefix); ok && w.rule.Derived == model.DerivedGateway {
		prefix, replaces = derived, true
	}
	if replaces {
		a.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: prefix}
		if prefix == "/" && w.rule.Derived == model.DerivedGateway {
			a.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: withoutPrefix(match)}
		}
	}
	scheme := "http"
	if w.tls {
		scheme = "https"
	}
	if r.GetScheme() != "" {
		scheme = r.GetScheme()
		a.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: scheme}
	}
	switch p := r.GetRedirectPort().(type) {
	case *networking.HTTPRedirect_Port:
		a.PortRedirect = p.Port
	case *networking.HTTPRedirect_DerivePort:
		if p.DerivePort == networking.HTTPRedirect_FROM_REQUEST_PORT {
			a.PortRedirect = w.port
		}
	}
	if scheme == "http" && a.GetPortRedirect() == 80 || scheme == "https" && a.GetPortRedirect() == 443 {
		a.PortRedirect = 0 // the scheme's default
	}
	switch r.GetRedirectCode() {
	case 302:
		a.ResponseCode = routev3.RedirectAction_FOUND
	case 303:
		a.ResponseCode = routev3.RedirectAction_SEE_OTHER
	case 307:
		a.ResponseCode = routev3.RedirectAction_TEMPORARY_REDIRECT
	case 308:
		a.ResponseCode = routev3.RedirectAction_PERMANENT_REDIRECT
	}
	return &routev3.Route_Redirect{Redirect: a}
}

func directResponse(r *networking.HTTPDirectResponse) *routev3.Route_DirectResponse {
	a := &routev3.DirectResponseAction{Status: r.GetStatus()}
	switch body := r.GetBody().GetSpecifier().(type) {
	case *networking.HTTPBody_String_:
		a.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: body.String_}}
	case *networking.HTTPBody_Bytes:
		a.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: body.Bytes}}
	}
	return &routev3.Route_DirectResponse{DirectResponse: a}
}

// Fault returns the fault injection, or nil if there is none or Envoy would reject it.
func Fault(httpFaultInjection *networking.HTTPFaultInjection) *faultv3.HTTPFault {
	out := &faultv3.HTTPFault{}
	if d := httpFaultInjection.GetDelay(); d.GetFixedDelay() != nil {
		out.Delay = &commonfaultv3.FaultDelay{
			FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: d.GetFixedDelay()},
			Percentage:         perMillion(d.GetPercentage()),
		}
		if d.GetPercentage() == nil {
			out.Delay.Percentage = perHundred(uint32(d.GetPercent())) //nolint:staticcheck,gosec // the older way to say it; validated
		}
	}
	if a := httpFaultInjection.GetAbort(); a.GetErrorType() != nil {
		abort := &faultv3.FaultAbort{}
		if a.GetPercentage() != nil {
			abort.Percentage = perMillion(a.GetPercentage())
		}
		switch e := a.GetErrorType().(type) {
		case *networking.HTTPFaultInjection_Abort_HttpStatus:
			abort.ErrorType = &faultv3.FaultAbort_HttpStatus{HttpStatus: uint32(e.HttpStatus)} //nolint:gosec // validated
			out.Abort = abort
		case *networking.HTTPFaultInjection_Abort_GrpcStatus:
			var code codes.Code
			if code.UnmarshalJSON([]byte(strconv.Quote(e.GrpcStatus))) == nil {
				abort.ErrorType = &faultv3.FaultAbort_GrpcStatus{GrpcStatus: uint32(code)}
				out.Abort = abort
			}
		}
	}
	if out.GetDelay() == nil && out.GetAbort() == nil || model.Refused(out) != "" {
		return nil
	}
	return out
}

func (w routeContext) cors(c *networking.CorsPolicy, place model.Place) *corsv3.CorsPolicy {
	corsPolicy := &corsv3.CorsPolicy{
		ForwardNotMatchingPreflights: wrapperspb.Bool(c.GetUnmatchedPreflights() != networking.CorsPolicy_IGNORE),
		FilterEnabled:                &corev3.RuntimeFractionalPercent{DefaultValue: perHundred(100)},
		AllowCredentials:             c.GetAllowCredentials(), AllowHeaders: strings.Join(c.GetAllowHeaders(), ","),
		AllowMethods: strings.Join(c.GetAllowMethods(), ","), ExposeHeaders: strings.Join(c.GetExposeHeaders(), ","),
	}
	for i, o := range c.GetAllowOrigins() {
		if model.RegexProblem(o.GetRegex(), model.LargeProgram) != "" {
			continue
		}
		if reason := model.RegexProblem(o.GetRegex(), w.client.LargestProgram()); reason != "" {
			w.findings.Note(place.Subfield("corsPolicy.allowOrigins[%d]", i), "%s: the origin is left out", reason)
			continue
		}
		corsPolicy.AllowOriginStringMatch = append(corsPolicy.AllowOriginStringMatch, stringMatch(o))
	}
	if c.GetAllowOrigins() == nil {
		for _, o := range c.GetAllowOrigin() { //nolint:staticcheck // the older way to say it
			corsPolicy.AllowOriginStringMatch = append(corsPolicy.AllowOriginStringMatch,
				&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: o}})
		}
	}
	if c.GetMaxAge() != nil {
		corsPolicy.MaxAge = strconv.FormatInt(c.GetMaxAge().GetSeconds(), 10)
	}
	return corsPolicy
}

// mirror is a destination of copies of a route's requests, with its place.
type mirror struct {
	model.Place
	to *networking.Destination
}

// mirrors yields the mirrors of a route, which is at a place, and their shares of the requests.
func mirrors(httpRoute *networking.HTTPRoute, place model.Place) iter.Seq2[mirror, *typev3.FractionalPercent] {
	return func(yield func(mirror, *typev3.FractionalPercent) bool) {
		if httpRoute.GetMirror() != nil {
			share := perHundred(100)
			switch {
			case httpRoute.GetMirrorPercentage() != nil:
				share = perMillion(httpRoute.GetMirrorPercentage())
			case httpRoute.GetMirrorPercent() != nil: //nolint:staticcheck // the older way to say it
				share = perHundred(httpRoute.GetMirrorPercent().GetValue()) //nolint:staticcheck // the same
			}
			if share.GetNumerator() > 0 && !yield(mirror{place.Subfield("mirror"), httpRoute.GetMirror()}, share) {
				return
			}
		}
		for i, httpMirrorPolicy := range httpRoute.GetMirrors() {
			share := perHundred(100)
			if httpMirrorPolicy.GetPercentage() != nil {
				share = perMillion(httpMirrorPolicy.GetPercentage())
			}
			if httpMirrorPolicy.GetDestination() != nil && share.GetNumerator() > 0 &&
				!yield(mirror{place.Subfield("mirrors[%d].destination", i), httpMirrorPolicy.GetDestination()}, share) {
				return
			}
		}
	}
}

func otherPriorities() *routev3.RetryPolicy_RetryPriority {
	return &routev3.RetryPolicy_RetryPriority{
		Name: "envoy.retry_priorities.previous_priorities",
		ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
			TypedConfig: model.ToAny(&previousprioritiesv3.PreviousPrioritiesConfig{UpdateFrequency: 2}),
		},
	}
}

func perMillion(p *networking.Percent) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{
		Numerator:   uint32(p.GetValue() * 10000),
		Denominator: typev3.FractionalPercent_MILLION,
	}
}

func perHundred(n uint32) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{Numerator: n, Denominator: typev3.FractionalPercent_HUNDRED}
}
