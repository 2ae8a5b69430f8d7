package model

import (
	"maps"
	"regexp"
	"strings"
)

// IsFormat says whether Envoy can make sense of a header's value, which may have commands between percent signs. It refuses all routes of a
// port for one that it does not know.
func IsFormat(value string) bool { return isFormatOf(value, commands) }

// IsLogFormat is isFormat for what is logged, where there are some more.
func IsLogFormat(value string) bool { return isFormatOf(value, logCommands) }

func isFormatOf(value string, commands map[string]*regexp.Regexp) bool {
	for {
		_, rest, found := strings.Cut(value, "%")
		if !found {
			return true
		}
		if after, escaped := strings.CutPrefix(rest, "%"); escaped {
			value = after
			continue
		}
		m := command.FindStringSubmatch(rest)
		if m == nil {
			return false
		}
		parameters, known := commands[m[1]]
		if !known || !parameters.MatchString(m[2]) || m[3] != "" && parameters != header {
			return false
		}
		value = rest[len(m[0]):]
	}
}

// A command has a name, some have parameters, and of some the length of what they stand for can be limited.
var command = regexp.MustCompile(`^([A-Z0-9_]+)(?:\(([^()]*)\))?(:[0-9]+)?%`)

// What the parameters of a command may be.
var (
	none     = regexp.MustCompile(`^$`)
	anything = regexp.MustCompile(`^`)
	some     = regexp.MustCompile(`^[^:,]+(:[^:,]+)*$`)
	header   = regexp.MustCompile(`^:?[A-Za-z0-9_-]+(\?:?[A-Za-z0-9_-]+)?$`)
	state    = regexp.MustCompile(`^[^:]+(:(PLAIN|TYPED))?$`)
)

// commands are those that all Envoys of the last years know.
var commands = func() map[string]*regexp.Regexp {
	all := map[string]*regexp.Regexp{
		"REQ": header, "RESP": header, "TRAILER": header, "DYNAMIC_METADATA": some, "CLUSTER_METADATA": some, "UPSTREAM_METADATA": some,
		"FILTER_STATE": state, "UPSTREAM_FILTER_STATE": state, "ENVIRONMENT": some,
		"START_TIME": anything, "DOWNSTREAM_PEER_CERT_V_START": anything, "DOWNSTREAM_PEER_CERT_V_END": anything,
	}
	for name := range strings.FieldsSeq(`
		BYTES_RECEIVED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS DURATION FILTER_CHAIN_NAME GRPC_STATUS_NUMBER HOSTNAME PROTOCOL
		DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_ADDRESS ` +
		`DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT
		DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_CERT DOWNSTREAM_PEER_FINGERPRINT_1
		DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_PEER_URI_SAN
		DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_REMOTE_PORT DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_SESSION_ID
		DOWNSTREAM_TLS_VERSION REQUEST_DURATION REQUEST_TX_DURATION REQUESTED_SERVER_NAME RESPONSE_CODE RESPONSE_CODE_DETAILS RESPONSE_DURATION
		RESPONSE_FLAGS RESPONSE_TX_DURATION ROUTE_NAME UPSTREAM_CLUSTER UPSTREAM_HOST UPSTREAM_LOCAL_ADDRESS UPSTREAM_REMOTE_ADDRESS
		UPSTREAM_REMOTE_PORT UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_TRANSPORT_FAILURE_REASON VIRTUAL_CLUSTER_NAME`) {
		all[name] = none
	}
	return all
}()

// logCommands are those that can be logged.
var logCommands = func() map[string]*regexp.Regexp {
	all := maps.Clone(commands)
	maps.Copy(all, map[string]*regexp.Regexp{
		"REQ_WITHOUT_QUERY": header, "METADATA": some, "CEL": anything,
		"GRPC_STATUS":          regexp.MustCompile(`^(CAMEL_STRING|SNAKE_STRING|NUMBER)?$`),
		"UPSTREAM_CLUSTER_RAW": none, "STREAM_ID": none, "ACCESS_LOG_TYPE": none, "LOCAL_REPLY_BODY": none,
		"DOWNSTREAM_TRANSPORT_FAILURE_REASON": none,
		"DOWNSTREAM_WIRE_BYTES_SENT":          none, "DOWNSTREAM_WIRE_BYTES_RECEIVED": none, "UPSTREAM_WIRE_BYTES_SENT": none,
		"UPSTREAM_WIRE_BYTES_RECEIVED": none,
		"UPSTREAM_CONNECTION_ID":       none, "UPSTREAM_PROTOCOL": none,
	})
	return all
}()
