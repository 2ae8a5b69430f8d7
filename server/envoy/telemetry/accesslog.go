package telemetry

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	queryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/server/envoy/model"
)

const unknownCommand = "Envoy does not know what is between the percent signs: the format is Istio's own"

// logFields are what Istio logs of itself, by the name that each has in JSON; a line of text has those of logText.
var logFields = map[string]string{
	"start_time": "%START_TIME%", "method": "%REQ(:METHOD)%", "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%", "protocol": "%PROTOCOL%",
	"response_code": "%RESPONSE_CODE%", "response_flags": "%RESPONSE_FLAGS%", "response_code_details": "%RESPONSE_CODE_DETAILS%",
	"connection_termination_details":    "%CONNECTION_TERMINATION_DETAILS%",
	"upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
	"bytes_received":                    "%BYTES_RECEIVED%", "bytes_sent": "%BYTES_SENT%", "duration": "%DURATION%",
	"upstream_service_time": "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
	"x_forwarded_for":       "%REQ(X-FORWARDED-FOR)%", "user_agent": "%REQ(USER-AGENT)%", "request_id": "%REQ(X-REQUEST-ID)%",
	"authority":     "%REQ(:AUTHORITY)%",
	"upstream_host": "%UPSTREAM_HOST%", "upstream_cluster": "%UPSTREAM_CLUSTER_RAW%", "upstream_local_address": "%UPSTREAM_LOCAL_ADDRESS%",
	"downstream_local_address": "%DOWNSTREAM_LOCAL_ADDRESS%", "downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%",
	"requested_server_name": "%REQUESTED_SERVER_NAME%", "route_name": "%ROUTE_NAME%",
}

// LogText is the line that Istio logs of itself, with the names of logFields.
var LogText = func() string {
	line := `[start_time] "method path protocol" response_code response_flags response_code_details connection_termination_details ` +
		`"upstream_transport_failure_reason" bytes_received bytes_sent duration upstream_service_time "x_forwarded_for" "user_agent" ` +
		`"request_id" "authority" ` +
		`"upstream_host" upstream_cluster upstream_local_address downstream_local_address downstream_remote_address requested_server_name ` +
		`route_name`
	return regexp.MustCompile(`[a-z_]+`).ReplaceAllStringFunc(line, func(name string) string { return logFields[name] }) + "\n"
}()

func logJSON() *structpb.Struct {
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(logFields))}
	for name, value := range logFields {
		s.Fields[name] = structpb.NewStringValue(value)
	}
	return s
}

// fileLog is the log of a provider that logs to a file. The built-in one is as the MeshConfig says, unless it says itself.
func fileLog(c *model.MeshConfig, p *meshv1alpha1.MeshConfig_ExtensionProvider, found *model.Findings) *accesslogv3.AccessLog {
	file := p.GetEnvoyFileAccessLog()
	path := file.GetPath()
	if p.GetName() == model.ProviderEnvoy && file.GetLogFormat() == nil && !file.GetOmitEmptyValues() {
		return meshLog(c, path, found)
	}
	if path == "" {
		path = model.StandardOutput
	}
	i := slices.Index(c.Spec.GetExtensionProviders(), p)
	at := model.Place{Of: c.Key, Field: fmt.Sprintf("spec.extensionProviders[%d].envoyFileAccessLog.logFormat", i)}
	var format *corev3.SubstitutionFormatString
	switch of := file.GetLogFormat().GetLogFormat().(type) {
	case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Labels:
		format = jsonFormat(of.Labels, at.In("labels"), found)
	default:
		format = textFormat(file.GetLogFormat().GetText(), at.In("text"), found)
	}
	format.OmitEmptyValues = file.GetOmitEmptyValues()
	return logTo(path, format)
}

// meshLog is a log as the MeshConfig says of all of them.
func meshLog(c *model.MeshConfig, path string, found *model.Findings) *accesslogv3.AccessLog {
	at := model.Place{Of: c.Key, Field: "spec.accessLogFormat"}
	if c.Spec.GetAccessLogEncoding() != meshv1alpha1.MeshConfig_JSON {
		return logTo(path, textFormat(c.Spec.GetAccessLogFormat(), at, found))
	}
	var labels *structpb.Struct
	if text := c.Spec.GetAccessLogFormat(); text != "" {
		labels = &structpb.Struct{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), labels); err != nil {
			found.Note(at, "it is no JSON: the format is Istio's own")
			labels = nil
		}
	}
	return logTo(path, jsonFormat(labels, at, found))
}

// textFormat is the format of a line of text, that of Istio if it is empty or if Envoy would refuse it.
func textFormat(text string, at model.Place, found *model.Findings) *corev3.SubstitutionFormatString {
	if text != "" && !model.IsLogFormat(text) {
		found.Note(at, unknownCommand)
		text = ""
	}
	switch {
	case text == "":
		text = LogText
	case !strings.HasSuffix(text, "\n"):
		text += "\n"
	}
	return withFormatters(&corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{
		TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}},
	}}, text)
}

// jsonFormat is the format of an object, that of Istio if it is empty or if Envoy would refuse it.
func jsonFormat(labels *structpb.Struct, at model.Place, found *model.Findings) *corev3.SubstitutionFormatString {
	texts := textsIn(structpb.NewStructValue(labels))
	if slices.ContainsFunc(texts, func(t string) bool { return !model.IsLogFormat(t) }) {
		found.Note(at, unknownCommand)
		labels = nil
	}
	if len(labels.GetFields()) == 0 {
		labels = logJSON()
	}
	return withFormatters(&corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: labels}, JsonFormatOptions: &corev3.JsonFormatOptions{},
	}, texts...)
}

// textsIn returns all texts of a value.
func textsIn(v *structpb.Value) (texts []string) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return []string{k.StringValue}
	case *structpb.Value_StructValue:
		for _, e := range k.StructValue.GetFields() {
			texts = append(texts, textsIn(e)...)
		}
	case *structpb.Value_ListValue:
		for _, e := range k.ListValue.GetValues() {
			texts = append(texts, textsIn(e)...)
		}
	}
	return texts
}

// withFormatters adds what some commands need that Envoy does not know of itself.
func withFormatters(format *corev3.SubstitutionFormatString, texts ...string) *corev3.SubstitutionFormatString {
	if slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, "%REQ_WITHOUT_QUERY") }) {
		format.Formatters = []*corev3.TypedExtensionConfig{{
			Name:        "envoy.formatter.req_without_query",
			TypedConfig: model.ToAny(&queryv3.ReqWithoutQuery{}),
		}}
	}
	return format
}

func logTo(path string, format *corev3.SubstitutionFormatString) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{
		Name: "envoy.access_loggers.file",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: model.ToAny(&filev3.FileAccessLog{
			Path: path, AccessLogFormat: &filev3.FileAccessLog_LogFormat{LogFormat: format},
		})},
	}
}

// CelFilter is a filter of logs by an expression, nil if there is none, or why Envoy would refuse it.
func CelFilter(f *telemetryv1alpha1.AccessLogging_Filter) (*accesslogv3.AccessLogFilter, string) {
	if f == nil {
		return nil, ""
	}
	if why := whyNotExpression(f.GetExpression()); why != "" {
		return nil, why
	}
	filter := &accesslogv3.ExtensionFilter{
		Name:       "envoy.access_loggers.extension_filters.cel",
		ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: model.ToAny(&celv3.ExpressionFilter{Expression: f.GetExpression()})},
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{ExtensionFilter: filter}}, ""
}

// expressions is where expressions are parsed, which are in the Common Expression Language.
var expressions, _ = cel.NewEnv()

// functions are those of the language itself, by the number of what they are called with. Envoy refuses a listener with one that it does
// not know.
var functions = func() map[string]bool {
	all := make(map[string]bool)
	for name := range strings.FieldsSeq(`_?_:_/3 _&&_/2 _||_/2 !_/1 _==_/2 _!=_/2 _<_/2 _<=_/2 _>_/2 _>=_/2 _+_/2 _-_/2 _*_/2 _/_/2 ` +
		`_%_/2 -_/1 _[_]/2 @in/2
		size/1 contains/2 startsWith/2 endsWith/2 matches/2 int/1 uint/1 double/1 bytes/1 bool/1 type/1 dyn/1 timestamp/1 duration/1
		getFullYear/1 getFullYear/2 getMonth/1 getMonth/2 getDayOfYear/1 getDayOfYear/2 getDayOfMonth/1 getDayOfMonth/2 getDate/1 getDate/2
		getDayOfWeek/1 getDayOfWeek/2 getHours/1 getHours/2 getMinutes/1 getMinutes/2 getSeconds/1 getSeconds/2 getMilliseconds/1 ` +
		`getMilliseconds/2`) {
		all[name] = true
	}
	return all
}()

// whyNotExpression says why Envoy would refuse an expression, or returns nothing.
func whyNotExpression(text string) (why string) {
	parsed, issues := expressions.Parse(text)
	if err := issues.Err(); err != nil {
		return "it is no expression: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			call := e.AsCall()
			arguments := len(call.Args())
			if call.IsMemberFunction() {
				arguments++
			}
			if name := call.FunctionName(); why == "" && !functions[fmt.Sprintf("%s/%d", name, arguments)] {
				why = "Envoy does not know the function " + name
			}
		case ast.ComprehensionKind, ast.StructKind:
			if why == "" {
				why = "Envoy takes neither macros such as exists nor messages"
			}
		}
	}))
	return why
}
