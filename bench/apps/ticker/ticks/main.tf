# Writes 40 lines, each with the nanoseconds since 1970 at which it was written.
# They come some 70 ms apart, so that they fall everywhere between two sendings
# of a log that is sent every 100 ms.

resource "terraform_data" "ticks" {
  provisioner "local-exec" {
    command = "i=0; while [ $i -lt 40 ]; do date +tick=%s%N; sleep 0.07; i=$((i+1)); done"
  }
}
