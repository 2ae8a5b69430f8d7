package model

import (
	"maps"
	"regexp"
	"strings"
)

// IsFormat reports whether Envoy accepts a header's value, which may have commands between percent signs. Envoy refuses
// all routes of a port for an unknown command.
func IsFormat(value string) bool { return isFormatOf(value, commands) }

// IsLogFormat is IsFormat with the commands of access logs.
func IsLogFormat(value string) bool { return isFormatOf(value, logCommands) }

func isFormatOf(value string, commands map[string]*regexp.Regexp) bool {
	for {
		_, rest, hasPercent := strings.Cut(value, "%")
		if !hasPercent {
			return true
		}
		if after, escaped := strings.CutPrefix(rest, "%"); escaped {
			value = after
			continue
		}
		match := command.FindStringSubmatch(rest)
		if match == nil {
			return false
		}
		parameters, exists := commands[match[1]]
		if !exists || !parameters.MatchString(match[2]) || match[3] != "" && parameters != header {
			return false
		}
		value = rest[len(match[0]):]
	}
}

// A command has a name, optional parameters, and an optional limit of its length.
var command = regexp.MustCompile(`^([A-Z0-9_]+)(?:\(([^()]*)\))?(:[0-9]+)?%`)

// The syntax of the parameters of commands.
var (
	noParameters   = regexp.MustCompile(`^$`)
	anything       = regexp.MustCompile(`^`)
	pathParameters = regexp.MustCompile(`^[^:,]+(:[^:,]+)*$`)
	header         = regexp.MustCompile(`^:?[A-Za-z0-9_-]+(\?:?[A-Za-z0-9_-]+)?$`)
	state          = regexp.MustCompile(`^[^:]+(:(PLAIN|TYPED))?$`)
)

// commands are those that all Envoys of recent years support.
var commands = func() map[string]*regexp.Regexp {
	patterns := map[string]*regexp.Regexp{
		"REQ": header, "RESP": header, "TRAILER": header, "DYNAMIC_METADATA": pathParameters,
		"CLUSTER_METADATA": pathParameters, "UPSTREAM_METADATA": pathParameters,
		"FILTER_STATE": state, "UPSTREAM_FILTER_STATE": state, "ENVIRONMENT": pathParameters,
		"START_TIME": anything, "DOWNSTREAM_PEER_CERT_V_START": anything, "DOWNSTREAM_PEER_CERT_V_END": anything,
	}
	for name := range strings.FieldsSeq(`
		BYTES_RECEIVED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS DURATION FILTER_CHAIN_NAME
		GRPC_STATUS_NUMBER HOSTNAME PROTOCOL DOWNSTREAM_DIRECT_REMOTE_ADDRESS
		DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_ADDRESS DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT
		DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_CERT
		DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_SERIAL
		DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_PEER_URI_SAN DOWNSTREAM_REMOTE_ADDRESS
		DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_REMOTE_PORT DOWNSTREAM_TLS_CIPHER
		DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_VERSION REQUEST_DURATION REQUEST_TX_DURATION REQUESTED_SERVER_NAME
		RESPONSE_CODE RESPONSE_CODE_DETAILS RESPONSE_DURATION RESPONSE_FLAGS RESPONSE_TX_DURATION ROUTE_NAME
		UPSTREAM_CLUSTER UPSTREAM_HOST UPSTREAM_LOCAL_ADDRESS UPSTREAM_REMOTE_ADDRESS UPSTREAM_REMOTE_PORT
		UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_TRANSPORT_FAILURE_REASON VIRTUAL_CLUSTER_NAME`) {
		patterns[name] = noParameters
	}
	return patterns
}()

// logCommands are the commands of access logs.
var logCommands = func() map[string]*regexp.Regexp {
	patterns := maps.Clone(commands)
	maps.Copy(patterns, map[string]*regexp.Regexp{
		"REQ_WITHOUT_QUERY": header, "METADATA": pathParameters, "CEL": anything,
		"GRPC_STATUS":          regexp.MustCompile(`^(CAMEL_STRING|SNAKE_STRING|NUMBER)?$`),
		"UPSTREAM_CLUSTER_RAW": noParameters, "STREAM_ID": noParameters, "ACCESS_LOG_TYPE": noParameters,
		"LOCAL_REPLY_BODY":                    noParameters,
		"DOWNSTREAM_TRANSPORT_FAILURE_REASON": noParameters,
		"DOWNSTREAM_WIRE_BYTES_SENT":          noParameters, "DOWNSTREAM_WIRE_BYTES_RECEIVED": noParameters,
		"UPSTREAM_WIRE_BYTES_SENT":     noParameters,
		"UPSTREAM_WIRE_BYTES_RECEIVED": noParameters,
		"UPSTREAM_CONNECTION_ID":       noParameters, "UPSTREAM_PROTOCOL": noParameters,
	})
	return patterns
}()
