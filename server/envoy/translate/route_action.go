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

func (r routeContext) redirect(redirect *networking.HTTPRedirect, match *routev3.RouteMatch) *routev3.Route_Redirect {
	action := &routev3.RedirectAction{
		HostRedirect:         redirect.GetAuthority(),
		PathRewriteSpecifier: &routev3.RedirectAction_PathRedirect{PathRedirect: redirect.GetUri()},
	}
	prefix := redirect.GetPrefixRewrite()
	replaces := prefix != ""
	derived, ok := strings.CutPrefix(redirect.GetUri(), replacesPrefix)
	if ok && r.virtualService.Derived == model.DerivedGateway {
		prefix = derived
		replaces = true
	}
	if replaces {
		action.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: prefix}
		if prefix == "/" && r.virtualService.Derived == model.DerivedGateway {
			action.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: withoutPrefix(match)}
		}
	}
	scheme := "http"
	if r.tls {
		scheme = "https"
	}
	if redirect.GetScheme() != "" {
		scheme = redirect.GetScheme()
		action.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: scheme}
	}
	switch port := redirect.GetRedirectPort().(type) {
	case *networking.HTTPRedirect_Port:
		action.PortRedirect = port.Port
	case *networking.HTTPRedirect_DerivePort:
		if port.DerivePort == networking.HTTPRedirect_FROM_REQUEST_PORT {
			action.PortRedirect = r.port
		}
	}
	if scheme == "http" && action.GetPortRedirect() == 80 || scheme == "https" && action.GetPortRedirect() == 443 {
		action.PortRedirect = 0 // the scheme's default
	}
	switch redirect.GetRedirectCode() {
	case 302:
		action.ResponseCode = routev3.RedirectAction_FOUND
	case 303:
		action.ResponseCode = routev3.RedirectAction_SEE_OTHER
	case 307:
		action.ResponseCode = routev3.RedirectAction_TEMPORARY_REDIRECT
	case 308:
		action.ResponseCode = routev3.RedirectAction_PERMANENT_REDIRECT
	}
	return &routev3.Route_Redirect{Redirect: action}
}

func directResponse(response *networking.HTTPDirectResponse) *routev3.Route_DirectResponse {
	action := &routev3.DirectResponseAction{Status: response.GetStatus()}
	switch body := response.GetBody().GetSpecifier().(type) {
	case *networking.HTTPBody_String_:
		action.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: body.String_}}
	case *networking.HTTPBody_Bytes:
		action.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: body.Bytes}}
	}
	return &routev3.Route_DirectResponse{DirectResponse: action}
}

// Fault returns the fault injection, or nil if there is none or Envoy would reject it.
func Fault(injection *networking.HTTPFaultInjection) *faultv3.HTTPFault {
	fault := &faultv3.HTTPFault{}
	if delay := injection.GetDelay(); delay.GetFixedDelay() != nil {
		fault.Delay = &commonfaultv3.FaultDelay{
			FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: model.Shortened(delay.GetFixedDelay())},
			Percentage:         perMillion(delay.GetPercentage()),
		}
		if delay.GetPercentage() == nil {
			//nolint:staticcheck,gosec // the older way to say it; validated
			fault.Delay.Percentage = perHundred(uint32(delay.GetPercent()))
		}
	}
	if abortion := injection.GetAbort(); abortion.GetErrorType() != nil {
		abort := &faultv3.FaultAbort{}
		if abortion.GetPercentage() != nil {
			abort.Percentage = perMillion(abortion.GetPercentage())
		}
		switch errorType := abortion.GetErrorType().(type) {
		case *networking.HTTPFaultInjection_Abort_HttpStatus:
			status := uint32(errorType.HttpStatus) //nolint:gosec // validated
			abort.ErrorType = &faultv3.FaultAbort_HttpStatus{HttpStatus: status}
			fault.Abort = abort
		case *networking.HTTPFaultInjection_Abort_GrpcStatus:
			var code codes.Code
			if code.UnmarshalJSON([]byte(strconv.Quote(errorType.GrpcStatus))) == nil {
				abort.ErrorType = &faultv3.FaultAbort_GrpcStatus{GrpcStatus: uint32(code)}
				fault.Abort = abort
			}
		}
	}
	if fault.GetDelay() == nil && fault.GetAbort() == nil || model.Refused(fault) != "" {
		return nil
	}
	return fault
}

func (r routeContext) cors(policy *networking.CorsPolicy, place model.Place) *corsv3.CorsPolicy {
	corsPolicy := &corsv3.CorsPolicy{
		ForwardNotMatchingPreflights: wrapperspb.Bool(policy.GetUnmatchedPreflights() != networking.CorsPolicy_IGNORE),
		FilterEnabled:                &corev3.RuntimeFractionalPercent{DefaultValue: perHundred(100)},
		AllowCredentials:             policy.GetAllowCredentials(), AllowHeaders: strings.Join(policy.GetAllowHeaders(), ","),
		AllowMethods:  strings.Join(policy.GetAllowMethods(), ","),
		ExposeHeaders: strings.Join(policy.GetExposeHeaders(), ","),
	}
	for i, origin := range policy.GetAllowOrigins() {
		if model.RegexProblem(origin.GetRegex(), model.LargeProgram) != "" {
			continue
		}
		if reason := model.RegexProblem(origin.GetRegex(), r.view.Client.LargestProgram()); reason != "" {
			r.findings.Note(place.Subfield("corsPolicy.allowOrigins[%d]", i), "%s: the origin is left out", reason)
			continue
		}
		corsPolicy.AllowOriginStringMatch = append(corsPolicy.AllowOriginStringMatch, stringMatch(origin))
	}
	if policy.GetAllowOrigins() == nil {
		for _, origin := range policy.GetAllowOrigin() { //nolint:staticcheck // the older way to say it
			corsPolicy.AllowOriginStringMatch = append(corsPolicy.AllowOriginStringMatch,
				&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: origin}})
		}
	}
	if policy.GetMaxAge() != nil {
		corsPolicy.MaxAge = strconv.FormatInt(policy.GetMaxAge().GetSeconds(), 10)
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
