package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPayloadsComeBackAsTheyWent(t *testing.T) {
	payload := &Payload{
		Kind: "ServerCheckRequest", ClientIP: "127.0.0.1", Headers: map[string]string{"accessToken": "x", "a": ""},
		Body: []byte(`{}`),
	}
	data, err := Codec{}.Marshal(payload)
	require.NoError(t, err)
	var got Payload
	require.NoError(t, Codec{}.Unmarshal(data, &got))
	require.Equal(t, payload, &got)
	_, err = Codec{}.Marshal("text")
	require.Error(t, err)
	require.Error(t, Codec{}.Unmarshal(nil, "text"))
}

func FuzzPayload(f *testing.F) {
	f.Add((&Payload{Kind: "k", Headers: map[string]string{"a": "b"}, Body: []byte("{}")}).marshal())
	f.Fuzz(func(t *testing.T, content []byte) {
		var payload, again Payload
		if payload.unmarshal(content) != nil {
			return
		}
		require.NoError(t, again.unmarshal(payload.marshal()))
		require.Equal(t, payload.Kind, again.Kind)
		require.Equal(t, string(payload.Body), string(again.Body))
	})
}
