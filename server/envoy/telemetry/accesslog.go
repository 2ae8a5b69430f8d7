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

// unknownCommand is the finding about a format that Envoy would refuse.
const unknownCommand = "Envoy does not know a command between percent signs: Istio's default format is used"

// logFields are the fields of Istio's default access log, by their names in JSON. LogText has the same fields.
var logFields = map[string]string{
	"start_time": "%START_TIME%", "method": "%REQ(:METHOD)%", "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
	"protocol":      "%PROTOCOL%",
	"response_code": "%RESPONSE_CODE%", "response_flags": "%RESPONSE_FLAGS%",
	"response_code_details":             "%RESPONSE_CODE_DETAILS%",
	"connection_termination_details":    "%CONNECTION_TERMINATION_DETAILS%",
	"upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
	"bytes_received":                    "%BYTES_RECEIVED%", "bytes_sent": "%BYTES_SENT%", "duration": "%DURATION%",
	"upstream_service_time": "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
	"x_forwarded_for":       "%REQ(X-FORWARDED-FOR)%", "user_agent": "%REQ(USER-AGENT)%",
	"request_id":    "%REQ(X-REQUEST-ID)%",
	"authority":     "%REQ(:AUTHORITY)%",
	"upstream_host": "%UPSTREAM_HOST%", "upstream_cluster": "%UPSTREAM_CLUSTER_RAW%",
	"upstream_local_address":   "%UPSTREAM_LOCAL_ADDRESS%",
	"downstream_local_address": "%DOWNSTREAM_LOCAL_ADDRESS%", "downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%",
	"requested_server_name": "%REQUESTED_SERVER_NAME%", "route_name": "%ROUTE_NAME%",
}

// LogText is Istio's default format of a line.
var LogText = func() string {
	line := `[start_time] "method path protocol" response_code response_flags response_code_details connection_termination_details ` +
		`"upstream_transport_failure_reason" bytes_received bytes_sent duration upstream_service_time "x_forwarded_for" "user_agent" ` +
		`"request_id" "authority" ` +
		`"upstream_host" upstream_cluster upstream_local_address downstream_local_address downstream_remote_address requested_server_name ` +
		`route_name`
	return regexp.MustCompile(`[a-z_]+`).ReplaceAllStringFunc(line, func(name string) string { return logFields[name] }) +
		"\n"
}()

// defaultLabels returns Istio's default format in JSON.
func defaultLabels() *structpb.Struct {
	labels := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(logFields))}
	for name, value := range logFields {
		labels.Fields[name] = structpb.NewStringValue(value)
	}
	return labels
}

// fileLog returns the access log of a provider that logs to a file. The built-in provider without its own settings has
// those of the MeshConfig.
func fileLog(config *model.MeshConfig, provider *extensionProvider, findings *model.Findings) *accesslogv3.AccessLog {
	file := provider.GetEnvoyFileAccessLog()
	path := file.GetPath()
	if provider.GetName() == model.ProviderEnvoy && file.GetLogFormat() == nil && !file.GetOmitEmptyValues() {
		return meshLog(config, path, findings)
	}
	if path == "" {
		path = model.StandardOutput
	}
	position := slices.Index(config.Spec.GetExtensionProviders(), provider)
	place := model.PlaceIn(config.Key, "spec.extensionProviders[%d].envoyFileAccessLog.logFormat", position)
	var format *corev3.SubstitutionFormatString
	switch setting := file.GetLogFormat().GetLogFormat().(type) {
	case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Labels:
		format = jsonFormat(setting.Labels, place.Subfield("labels"), findings)
	default:
		format = textFormat(file.GetLogFormat().GetText(), place.Subfield("text"), findings)
	}
	format.OmitEmptyValues = file.GetOmitEmptyValues()
	return newFileLog(path, format)
}

// meshLog returns an access log with the format of the MeshConfig.
func meshLog(config *model.MeshConfig, path string, findings *model.Findings) *accesslogv3.AccessLog {
	place := model.PlaceIn(config.Key, "spec.accessLogFormat")
	if config.Spec.GetAccessLogEncoding() != meshv1alpha1.MeshConfig_JSON {
		return newFileLog(path, textFormat(config.Spec.GetAccessLogFormat(), place, findings))
	}
	var labels *structpb.Struct
	if text := config.Spec.GetAccessLogFormat(); text != "" {
		labels = &structpb.Struct{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), labels); err != nil {
			findings.Note(place, "it is no JSON: Istio's default format is used")
			labels = nil
		}
	}
	return newFileLog(path, jsonFormat(labels, place, findings))
}

// textFormat returns the format of a line, or Istio's default if the text is empty or Envoy would refuse it.
func textFormat(text string, place model.Place, findings *model.Findings) *corev3.SubstitutionFormatString {
	if text != "" && !model.IsLogFormat(text) {
		findings.Note(place, unknownCommand)
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

// jsonFormat returns the format of an object, or Istio's default if there are no labels or Envoy would refuse one.
func jsonFormat(labels *structpb.Struct, place model.Place, findings *model.Findings) *corev3.SubstitutionFormatString {
	texts := textsIn(structpb.NewStructValue(labels))
	if slices.ContainsFunc(texts, func(text string) bool { return !model.IsLogFormat(text) }) {
		findings.Note(place, unknownCommand)
		labels = nil
	}
	if len(labels.GetFields()) == 0 {
		labels = defaultLabels()
	}
	return withFormatters(&corev3.SubstitutionFormatString{
		Format:            &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: labels},
		JsonFormatOptions: &corev3.JsonFormatOptions{},
	}, texts...)
}

// textsIn returns the texts in a value, at every depth.
func textsIn(value *structpb.Value) (texts []string) {
	switch kind := value.GetKind().(type) {
	case *structpb.Value_StringValue:
		return []string{kind.StringValue}
	case *structpb.Value_StructValue:
		for _, field := range kind.StructValue.GetFields() {
			texts = append(texts, textsIn(field)...)
		}
	case *structpb.Value_ListValue:
		for _, element := range kind.ListValue.GetValues() {
			texts = append(texts, textsIn(element)...)
		}
	}
	return texts
}

// withFormatters adds the extensions that commands of a format need.
func withFormatters(format *corev3.SubstitutionFormatString, texts ...string) *corev3.SubstitutionFormatString {
	needsExtension := func(text string) bool { return strings.Contains(text, "%REQ_WITHOUT_QUERY") }
	if slices.ContainsFunc(texts, needsExtension) {
		format.Formatters = []*corev3.TypedExtensionConfig{{
			Name:        "envoy.formatter.req_without_query",
			TypedConfig: model.ToAny(&queryv3.ReqWithoutQuery{}),
		}}
	}
	return format
}

func newFileLog(path string, format *corev3.SubstitutionFormatString) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{
		Name: "envoy.access_loggers.file",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: model.ToAny(&filev3.FileAccessLog{
			Path: path, AccessLogFormat: &filev3.FileAccessLog_LogFormat{LogFormat: format},
		})},
	}
}

// CelFilter returns the filter of an expression, nil without one, or why Envoy would refuse it.
func CelFilter(setting *telemetryv1alpha1.AccessLogging_Filter) (filter *accesslogv3.AccessLogFilter, wrong string) {
	if setting == nil {
		return nil, ""
	}
	if wrong = checkExpression(setting.GetExpression()); wrong != "" {
		return nil, wrong
	}
	expression := model.ToAny(&celv3.ExpressionFilter{Expression: setting.GetExpression()})
	extension := &accesslogv3.ExtensionFilter{
		Name:       "envoy.access_loggers.extension_filters.cel",
		ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: expression},
	}
	specifier := &accesslogv3.AccessLogFilter_ExtensionFilter{ExtensionFilter: extension}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: specifier}, ""
}

// expressions parses the Common Expression Language.
var expressions, _ = cel.NewEnv()

// functions are the functions that Envoy has, each with its number of arguments. Envoy refuses a listener with another
// function.
var functions = func() map[string]bool {
	names := make(map[string]bool)
	for name := range strings.FieldsSeq(`_?_:_/3 _&&_/2 _||_/2 !_/1 _==_/2 _!=_/2 _<_/2 _<=_/2 _>_/2 _>=_/2 _+_/2 _-_/2 _*_/2 _/_/2
		_%_/2 -_/1 _[_]/2 @in/2
		size/1 contains/2 startsWith/2 endsWith/2 matches/2 int/1 uint/1 double/1 bytes/1 bool/1 type/1 dyn/1 timestamp/1
		duration/1 getFullYear/1 getFullYear/2 getMonth/1 getMonth/2 getDayOfYear/1 getDayOfYear/2 getDayOfMonth/1
		getDayOfMonth/2 getDate/1 getDate/2 getDayOfWeek/1 getDayOfWeek/2 getHours/1 getHours/2 getMinutes/1 getMinutes/2
		getSeconds/1 getSeconds/2 getMilliseconds/1 getMilliseconds/2`) {
		names[name] = true
	}
	return names
}()

// checkExpression returns why Envoy would refuse an expression; it is empty if Envoy accepts it.
func checkExpression(text string) (wrong string) {
	parsed, issues := expressions.Parse(text)
	if err := issues.Err(); err != nil {
		return "it is no expression: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(expression ast.Expr) {
		if wrong != "" {
			return
		}
		switch expression.Kind() {
		case ast.CallKind:
			call := expression.AsCall()
			arguments := len(call.Args())
			if call.IsMemberFunction() {
				arguments++
			}
			if name := call.FunctionName(); !functions[fmt.Sprintf("%s/%d", name, arguments)] {
				wrong = "Envoy does not know the function " + name
			}
		case ast.ComprehensionKind, ast.StructKind:
			wrong = "Envoy takes neither macros such as exists nor messages"
		}
	}))
	return wrong
}
