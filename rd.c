
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int c,char**v){char*buf=malloc(1<<18);char f[4096];long o,n;FILE*l=fopen(v[1],"r");while(fscanf(l,"%4095s %ld %ld",f,&o,&n)==3){int d=open(f,O_RDONLY);while(n>0){long t=n<(1<<18)?n:(1<<18);long r=pread(d,buf,t,o);if(r<=0)return 1;o+=r;n-=r;}close(d);}return 0;}
